"""Starting many jobs at once, while there is room for far more than one: same decisions, taken class by class."""

from collections.abc import Sequence

from penstock.core.cycle.workspace import Board, Placed
from penstock.core.model.ids import ClassId
from penstock.core.model.jobs import Job, RequestClass
from penstock.core.order.walk import Cursor

WAVE_MAX = 16_384
WAVE_MIN = 64
"""Fewer jobs than this are looked at one by one."""

Wave = list[tuple[Cursor, int, Job]]
"""Jobs in order, each with its class and its position there."""


def start_waves(board: Board) -> None:
    """Start jobs in whole waves: the next jobs in order, as many as surely fit.

    They are placed sorted by class, which costs little each and keeps alike jobs together. If one does not fit after
    all, the wave never was. Who starts is the same as one by one; where may differ, as it does with any strategy.
    """
    if board.order.waiting < WAVE_MIN:
        return
    size = WAVE_MAX
    while size >= WAVE_MIN and not board.shadows:
        wave = _next_wave(board, size)
        if len(wave) < WAVE_MIN:
            _undo(board, wave)
            return
        placed = _place(board, wave)
        if placed is None:
            _undo(board, wave)
            size //= 4
            continue
        for (cursor, _, job), (choice, ask, places) in zip(wave, placed, strict=True):
            board.note_start(job, ask, places, choice)
            if cursor.key.length_ms:
                board.ahead.started(job, ask, places, board.end_ms(cursor.key))


def _next_wave(board: Board, size: int) -> Wave:
    room = min(size, board.settings.starts_per_cycle_max - len(board.starts))
    budget = {pool: milli // 2 for pool, milli in board.cluster.free_milli.items()}
    slots: dict[ClassId, int] = {}
    wave: Wave = []
    order, block = board.order, board.tree.block
    while len(wave) < room and (cursor := order.peek()) is not None:
        job = cursor.job
        if job.id in board.handled:
            order.skip(cursor)
            continue
        pool = cursor.key.ask.pool
        left = budget.get(pool, 0) - cursor.milli
        if cursor.plain is None:
            cursor.plain = _is_plain(board, cursor.key)
        if left < 0 or not cursor.plain or block(cursor.leaf, order.demand(cursor)) is not None:
            break
        if not cursor.milli and not _one_less(board, cursor, slots, room):
            break
        budget[pool] = left
        wave.append((cursor, cursor.at, job))
        order.started(cursor)
    return wave


def _one_less(board: Board, cursor: Cursor, slots: dict[ClassId, int], most: int) -> bool:
    """Take one of the slots that nodes have for jobs without devices of one class, half of them; False: none is left.

    Free devices say nothing of how many such jobs fit.
    """
    left = slots.get(cursor.class_id)
    if left is None:
        prepared = board.shapes(cursor.class_id, cursor.key)[0]
        cluster, view, replicas = prepared.cluster, prepared.view, prepared.gang.replica_total
        found = 0
        for state in cluster.fitting_states(cluster.view(view.need, 1)):
            found += cluster.count(state) * view.capacity(cluster.table, state, most)
        left = found // replicas // 2
    slots[cursor.class_id] = left - 1
    return left > 0


def _is_plain(board: Board, key: RequestClass) -> bool:
    """Whether jobs of the class need nothing but room."""
    pool = board.pools.get(key.ask.pool)
    if pool is None or (pool.reserve_milli and not key.preemptible):
        return False
    rule = board.tree.rules.get(key.queue)
    ordinary = not board.tree.counts_models and not key.ask.elastic and not key.alternatives
    return ordinary and (rule is None or rule.policy != "least_attained")


def _place(board: Board, wave: Wave) -> list[Placed] | None:
    mark = board.cluster.mark()
    by_class: dict[ClassId, list[int]] = {}
    for position, (cursor, _, _) in enumerate(wave):
        by_class.setdefault(cursor.class_id, []).append(position)
    placed: list[Placed | None] = [None] * len(wave)
    for positions in by_class.values():
        cursor = wave[positions[0]][0]
        found = board.place_alike(cursor.class_id, cursor.key, len(positions))
        if found is None:
            board.cluster.rollback(mark)
            return None
        for position, one in zip(positions, found, strict=True):
            placed[position] = one
    return [found for found in placed if found is not None]


def _undo(board: Board, wave: Sequence[tuple[Cursor, int, Job]]) -> None:
    back: dict[int, tuple[Cursor, int]] = {}
    for cursor, at, _ in wave:
        board.tree.charge(cursor.leaf, board.order.demand(cursor), -1)
        back.setdefault(id(cursor), (cursor, at))
    if wave:
        board.order.set_back(back.values())
