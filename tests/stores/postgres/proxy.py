"""A proxy before the server that can lose an answer: the statement is carried out, and the client never hears of it."""

import asyncio
from contextlib import asynccontextmanager, suppress

from tests.postgres import folder_of


class Proxy:
    def __init__(self, url):
        self._socket = str(folder_of(url) / ".s.PGSQL.5432")
        self.losing = b""  # the next answer to a message with these bytes is lost, and the connection is cut
        self.is_deaf = False  # every answer is lost
        self.lost = 0
        self.delay = 0.0
        self.serving = set()

    async def serve(self, reader, writer):
        self.serving.add(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_unix_connection(self._socket)
        cut = asyncio.Event()

        async def requests():
            while data := await reader.read(65536):
                if self.losing and self.losing in data:
                    self.losing = b""
                    cut.set()
                await asyncio.sleep(self.delay)
                server_writer.write(data)

        async def answers():
            while data := await server_reader.read(65536):
                if cut.is_set() or self.is_deaf:
                    self.lost += 1
                    break
                await asyncio.sleep(self.delay)
                writer.write(data)

        tasks = [asyncio.create_task(requests()), asyncio.create_task(answers())]
        with suppress(asyncio.CancelledError):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (writer, server_writer):
            one.transport.abort()
        await asyncio.sleep(0)


@asynccontextmanager
async def proxied(url):
    """The proxy, and the address of the journal through it."""
    proxy = Proxy(url)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = url.partition("&")[2]
    try:
        yield proxy, f"postgresql://kaname@127.0.0.1:{port}/shop?{options}"
    finally:
        server.close()
        for task in proxy.serving:
            task.cancel()
        await asyncio.gather(*proxy.serving, return_exceptions=True)
