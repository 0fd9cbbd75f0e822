"""The answer as a type. A wrong one is asked for again, with the mistake, twice at most."""

from pydantic import BaseModel

from kaname import Agent, ScriptedModel


class City(BaseModel):
    name: str
    people: int


agent = Agent(ScriptedModel(['{"name": "Kyoto"}', '{"name": "Kyoto", "people": 1440000}']), output=City, journal="memory")
result = agent.run_sync("Tell me about Kyoto.")
print(repr(result.output))

# prints:
#   City(name='Kyoto', people=1440000)
