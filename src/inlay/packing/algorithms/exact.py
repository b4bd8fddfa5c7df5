"""Find a plan within a goal, or prove that there is none.

Among the plans within the goal there is one with the least sum of offsets, each weighted by about the
size of its buffer. In it nothing can move down. The search builds that plan from below. Its state is
the outline of what is placed, over *sections*: moments whose live sets are not part of others, so that
two buffers conflict if they share one.

* **Branching.** Of a section in a valley of floors, either one of its buffers is next, at that height, or
  none of them ever is there. What could be at the floor of a valley is inside of it, so nothing else can be
  below, and any valley is complete. Restarts differ in which is taken: the section with the fewest such
  buffers, or these weighed by how often it was too full or by what may stay free there, or a low one.
* **Floors.** No buffer of a section is below the lowest place that one of them could have. Raising one
  floor to that raises offsets of others and their floors, until nothing changes.
* **Bounds.** The buffers of a section lie on each other, none below its least offset: if they end
  beyond the goal, there is nothing here. So it is where something could move down.
* **Symmetry.** Of equal buffers the first in order is below, and so is it of two that have the same
  lifetime and touch.
* **Parts.** What no buffer connects is searched by itself, one part after the other, at the beginning (each
  with restarts of its own) and as buffers are placed.
* **Reasons.** Every floor and offset knows the decisions that it follows from. After a contradiction the
  search goes back to the last decision that has to do with it, over those that do not.
* **Restarts.** Which buffers and sections are tried first decides nearly everything. So the search starts
  again with other orders, which are drawn at random and prefer what was in sections that were too full. Tries
  that succeed mostly do so soon, so most are short.
* **Blocks.** In turns with that, restarts search for a plan of buffers that are glued together: those with
  one lifetime on each other, those of one size behind each other, again and again. There are fewer of them,
  so a plan is found soon where there is one; where there is none, that says nothing.

What every branch of a search of single buffers that found nothing was short of is a lower bound.

Source: the search from below with floors by section is that of MiniMalloc (Moffitt, "MiniMalloc: A
Lightweight Memory Allocator for Hardware-Accelerated Machine Learning", 2023), which goes over all
buffers in the order of offsets; branching by section, the bound by least offsets, the objective that
orders equal solutions, conflict-directed backjumping, learning from failures and blocks are additions.
"""

from __future__ import annotations

from inlay.packing import _search
from inlay.packing.algorithms.interface import Found, Task, unpacked

MOST_SPANS = 4_000_000
"""Sections of all buffers beyond which the tables of the search are too large."""


def run(task: Task) -> Found:
    """Search until a plan is found, none is left to try, or the steps are spent.

    Cost: memory in the number of sections of all buffers; no more time than the steps.
    """
    if task.instance.spans > MOST_SPANS:
        return Found(None, 0)
    found, need = _search.search(task.instance.native, task.goal, task.seed, task.steps, task.watch)
    return unpacked(found, need)
