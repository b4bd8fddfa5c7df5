"""Which instances are one function in the end.

Instances of one function with equal devices and regions everywhere, also in what they call, are one;
instances that differ in memories only are one if their sets intersect everywhere.
"""

from __future__ import annotations

from inlay.placement.infer.instance import Instance, Regions
from inlay.placement.infer.scopes import Places


def representatives(instances: list[Instance], places: Places, regions: Regions) -> dict[int, Instance]:
    """Return for each instance, by identity, the one that is written. Cost: linear."""
    shapes = _shapes(instances, places, regions)
    by_shape: dict[object, list[Instance]] = {}
    chosen: dict[int, Instance] = {}
    for instance in instances:  # callers first, so that parents are decided before local functions
        parent = None if instance.parent is None else id(chosen[id(instance.parent)])
        key = (id(instance.function), parent, shapes[id(instance)])
        for other in by_shape.setdefault(key, []):
            if _agree(other, instance, places):
                chosen[id(instance)] = other
                break
        else:
            by_shape[key].append(instance)
            chosen[id(instance)] = instance
    return chosen


def _shapes(instances: list[Instance], places: Places, regions: Regions) -> dict[int, int]:
    """Return a number for the devices and regions of each instance and of what it calls."""
    named: dict[int, set[tuple[int, str]]] = {}
    for (instance, call), name in regions.items():
        named.setdefault(instance, set()).add((call, name))
    numbers: dict[object, int] = {}
    found: dict[int, int] = {}
    # A function is instantiated by its callers, so what it calls stands behind it; members of a
    # recursive group, and functions around, are not told apart by each other.
    for instance in reversed(instances):
        devices = tuple(places.device(a) for a in instance.atoms)
        children = tuple(found.get(id(c), -1) for c in instance.children.values())
        key = (id(instance.function), devices, children, frozenset(named.get(id(instance), ())))
        found[id(instance)] = numbers.setdefault(key, len(numbers))
    return found


def _agree(one: Instance, other: Instance, places: Places) -> bool:
    """Merge the memories of two instances, if they intersect everywhere."""
    pairs = list(_pairs(one, other, set()))
    if not all(places.mask(a) & places.mask(b) for a, b in pairs):
        return False
    for a, b in pairs:
        places.merge(a, b)
    return True


def _pairs(one: Instance, other: Instance, seen: set[int]) -> list[tuple[int, int]]:
    if one is other or id(other) in seen or len(one.atoms) != len(other.atoms):
        return []
    seen.add(id(other))
    found = list(zip(one.atoms, other.atoms, strict=True))
    for a, b in zip(one.children.values(), other.children.values(), strict=False):
        found.extend(_pairs(a, b, seen))
    return found
