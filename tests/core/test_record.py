"""Records keep their base classes and inherit fields."""

from typing import Generic, TypeVar

import pytest

from kaname.core.record import defaults, field, mutable, record, replace

T = TypeVar("T")


class Greets:
    __slots__ = ()

    def greet(self):
        return f"hello {self.name}"


@record
class Person(Greets):
    name: str
    tags: list = field(factory=list)


@record
class Employee(Person):
    salary: int = 0


@record
class Box(Generic[T]):
    content: T


@mutable
class Counter:
    n: int = 0


def test_a_record_keeps_its_base_class():
    assert Person("Ann").greet() == "hello Ann"
    assert isinstance(Person("Ann"), Greets)


def test_a_record_inherits_the_fields_of_another():
    ann = Employee("Ann", ["a"], 5)
    assert (ann.name, ann.tags, ann.salary, ann.greet()) == ("Ann", ["a"], 5, "hello Ann")
    assert Employee("Ann").tags == []
    assert Employee("Ann") != Person("Ann")
    assert list(defaults(Employee)) == ["name", "tags", "salary"]
    assert replace(ann, salary=6) == Employee("Ann", ["a"], 6)
    with pytest.raises(AttributeError, match="cannot be changed"):
        ann.salary = 1
    match ann:
        case Employee(name, _, salary):
            assert (name, salary) == ("Ann", 5)


def test_a_record_may_be_generic():
    assert Box[int](3) == Box(3)
    assert Box[int](3).content == 3


def test_what_is_mutable_stays_so():
    counter = Counter()
    counter.n += 1
    assert counter == Counter(1)


def test_records_with_as_many_fields_keep_the_names_of_their_own_arguments():
    @record
    class Point:
        x: int
        y: list = field(factory=list)

    assert (Point(x=1).x, Point(1).y, Person(name="a").name, Person("a", tags=["b"]).tags) == (1, [], "a", ["b"])
    with pytest.raises(TypeError, match="'name'"):
        Point(name="a")


def test_a_field_without_a_default_after_one_with_a_default_is_refused():
    with pytest.raises(TypeError, match=r"Wrong\.b has no default"):

        @record
        class Wrong:
            a: int = 0
            b: str
