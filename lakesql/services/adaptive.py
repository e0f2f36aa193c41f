"""Adaptive compaction: which file groups to compact in this round, and why. Pure decisions from measured facts.

A round looks at every file group's logs and at what the person wants: a snapshot that reads at most so many times the
base files (`read_amplification`), a read-optimized view that is at most so old (`staleness`), compaction at most so much
of the time (`budget`). One score orders the groups: what readers have paid for a group's logs, per byte that compacting
moves. The formulas and where they come from are in docs/services/adaptive.md. Measuring is `adaptive_facts`, running
`adaptive_rounds`, words `adaptive_words`.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

ALONG = 0.5
"""A group with this share of the smallest score that must go goes along: at most 6 % dearer, and the view is fresher."""
WINDOW_S = 600.0
"""The budget is kept in every span of this length; a longer one where a single group takes longer."""
FOLD_FILES_MIN = 2
_RECENT_RUNS = 10
_DEFAULT_AMPLIFICATION = 1.5
_MARGIN = 1.25
_RELAX_MAX = 10_000.0
_BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True, slots=True)
class Target:
    """What the person wants. A target that is None is not wanted."""

    read_amplification: float | None = None
    staleness_s: float | None = None
    budget: float = 1.0

    def or_default(self, reads_known: bool) -> "Target":
        """With a read amplification of 1.5 where nothing says when compaction pays."""
        if self.read_amplification is None and self.staleness_s is None and not reads_known:
            return replace(self, read_amplification=_DEFAULT_AMPLIFICATION)
        return self


@dataclass(frozen=True, slots=True)
class Costs:
    """What work costs: seconds of a machine, and one factor that past compactions of the table tell."""

    round_s: float = 0.1
    group_s: float = 0.01
    base_byte_s: float = 1 / 40e6
    """To read a byte of a base file and write it anew."""
    log_byte_s: float = 1 / 15e6
    """To decode and merge a byte of a log."""
    base_read_s: float = 1 / 300e6
    """For a reader: a byte of a base file."""
    log_read: float = 1.0
    """For a reader: a byte of a log, in bytes of base files."""
    factor: float = 1.0

    def compacting(self, group: "Group") -> float:
        """Seconds that compacting one group takes."""
        return self.factor * (self.group_s + group.written * self.base_byte_s + group.log_bytes * self.log_byte_s)

    def folding(self, group: "Group") -> float:
        """Seconds that log compaction of one group takes: its logs become one."""
        moved = group.log_bytes * (self.log_byte_s + group.kept_by_folding * self.base_byte_s)
        return self.factor * (self.group_s + moved)

    @property
    def planning(self) -> float:
        """Seconds that a plan takes, whatever is in it."""
        return self.factor * self.round_s


@dataclass(frozen=True)
class Group:
    """One file group as measured. `taken`: a pending plan of a service covers it."""

    key: tuple[str, str]
    base_bytes: int
    log_bytes: int
    log_files: int = 0
    age_s: float = 0.0
    """Since the oldest commit in its logs completed."""
    rate: float = 0.0
    """Log bytes per second, recent ones counting most."""
    touches: float = 0.0
    """Commits per second that write to its logs, likewise."""
    log_rows: int | None = None
    base_rows: int | None = None
    taken: bool = False

    @property
    def written(self) -> int:
        """Bytes of the base file that compaction writes; without a base file the logs become one of about their size."""
        return self.base_bytes or self.log_bytes

    @property
    def moved(self) -> int:
        """Bytes that compaction reads and writes."""
        return self.base_bytes + self.log_bytes + self.written

    @cached_property
    def kept_by_folding(self) -> float:
        """Share of the log bytes that log compaction leaves, when updates hit the rows of the base file evenly.

        Of n updates on m rows m (1 - exp(-n / m)) rows are hit. Where rows are not known, bytes stand for them.
        """
        known = self.log_rows is not None and bool(self.base_rows)
        n = (self.log_rows or 0) / (self.base_rows or 1) if known else self.log_bytes / max(self.written, 1)
        return (1 - math.exp(-n)) / n if n > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """A compaction of the past: when it ended, how long it took, what it did."""

    ago_s: float
    seconds: float
    groups: int
    base_bytes: int
    log_bytes: int


@dataclass(frozen=True)
class Facts:
    """Everything a round decides from."""

    groups: tuple[Group, ...]
    runs: tuple[Run, ...] = ()
    costs: Costs = Costs()
    period_s: float = 0.0
    """Until the next round; 0 when none is planned."""
    reads_per_s: float | None = None
    """Snapshot reads of the table, None when they are not observed."""
    folds: bool = True
    """Whether the table can have log compaction."""

    @property
    def ahead_s(self) -> float:
        """How long what this round leaves has to do: until the next one is due, and has run as long as the last one."""
        if not self.period_s:
            return 0.0
        return self.period_s + min(self.runs, key=lambda r: r.ago_s).seconds if self.runs else self.period_s


@dataclass(frozen=True)
class Shortfall:
    """Why the targets cannot be met: the share of time that they need, and what would be enough instead."""

    needed: float
    budget: float | None
    """A budget that is enough; None when no share of one runner's time is."""
    targets: Target | None
    """Targets that the present budget is enough for; with `together` those that go with the budget above."""
    together: bool = False


@dataclass(frozen=True)
class Decision:
    """What a round does. Groups are in the order of their urgency."""

    compact: tuple[Group, ...] = ()
    fold: tuple[Group, ...] = ()
    """Groups whose logs become one log, since there is no time to compact them."""
    stale: int = 0
    """How many are due for the staleness target, for the read amplification, because readers paid for them."""
    amplified: int = 0
    paid: int = 0
    late: int = 0
    """Groups that are due and are left for a later round, for lack of time."""
    seconds: float = 0.0
    allowed_s: float = 0.0
    before: float = 1.0
    after: float = 1.0
    lag_s: float = 0.0
    lag_after_s: float = 0.0
    left: int = 0
    """Groups with logs that the round leaves alone."""
    taken: int = 0
    shortfall: Shortfall | None = None


# ---------------------------------------------------------------- measures


def measured_factor(runs: Sequence[Run], costs: Costs) -> float:
    """How much slower than `costs` the newest compactions were; 1 before the first."""
    newest = sorted(runs, key=lambda r: r.ago_s)[:_RECENT_RUNS]
    weights = [0.8**n for n in range(len(newest))]
    took = sum(w * r.seconds for w, r in zip(weights, newest, strict=True))
    expected = sum(
        w
        * (costs.round_s + r.groups * costs.group_s + r.base_bytes * costs.base_byte_s + r.log_bytes * costs.log_byte_s)
        for w, r in zip(weights, newest, strict=True)
    )
    return took / expected if took > 0 and expected > 0 else 1.0


def weighted_rate(events: Iterable[tuple[float, float]], span_s: float, memory_s: float) -> float:
    """Amount per second of (seconds ago, amount), weights falling by e every `memory_s`; `span_s`: what was looked at."""
    total = sum(amount * math.exp(-ago / memory_s) for ago, amount in events)
    return total / (memory_s * -math.expm1(-span_s / memory_s)) if total else 0.0


def amplification(groups: Iterable[Group], costs: Costs, ahead_s: float = 0.0, gone: Collection[Group] = ()) -> float:
    """What a snapshot reads, in units of what the base files alone would be; after `ahead_s`, with the logs of `gone` merged.

    A group without base file counts as if it had one as large as its logs.
    """
    base = sum(g.written for g in groups)
    return 1 + _logs(groups, ahead_s, {g.key for g in gone}) * costs.log_read / base if base else 1.0


def _logs(groups: Iterable[Group], ahead_s: float, gone: Collection[tuple[str, str]]) -> float:
    return sum((0 if g.key in gone else g.log_bytes) + g.rate * ahead_s for g in groups)


def score(group: Group, costs: Costs) -> float:
    """What readers paid for the logs of a group, per byte that compacting it moves.

    Logs that grew evenly for `age_s` cost half their present size at each moment of it.
    """
    return costs.log_read * group.log_bytes * max(group.age_s, 1.0) / 2 / max(group.moved, 1)


def allowed_seconds(facts: Facts, budget: float) -> float:
    """Seconds that this round may take: the budget's share of a window, less what compaction took in it already."""
    largest = max((facts.costs.compacting(g) for g in facts.groups if g.log_bytes), default=0.0)
    window = max(WINDOW_S, (largest + facts.costs.planning) / budget)
    used = sum(min(r.seconds, max(0.0, window - r.ago_s)) for r in facts.runs if r.ago_s < window)
    return max(0.0, budget * window - used)


# ---------------------------------------------------------------- the decision


def decide(facts: Facts, target: Target) -> Decision:
    """The decision of one round."""
    target = target.or_default(facts.reads_per_s is not None)
    costs = facts.costs
    free = [g for g in facts.groups if g.log_bytes and not g.taken]
    taken = [g for g in facts.groups if g.log_bytes and g.taken]
    stale = _stale(free, facts, target)
    amplified, along = _amplified(free, taken, facts, target)
    paid = [g for g in free if _readers_paid(g, facts)]
    due = list(dict.fromkeys([*stale, *amplified, *paid]))
    allowed = allowed_seconds(facts, target.budget)
    full, fold, seconds = _fitted(due, stale, along, allowed, facts)
    whole = {g.key for g in full}
    merged = [g for g in due if g.key in whole]
    lags = [g.age_s for g in (*free, *taken)]
    return Decision(
        compact=tuple(full),
        fold=tuple(fold),
        stale=sum(g.key in whole for g in stale),
        amplified=sum(g.key in whole for g in amplified),
        paid=sum(g.key in whole for g in paid),
        late=len(due) - len(merged),
        seconds=seconds,
        allowed_s=allowed,
        before=amplification(facts.groups, costs),
        after=_after(facts, full, fold),
        lag_s=max(lags, default=0.0),
        lag_after_s=max((g.age_s for g in (*free, *taken) if g.key not in whole), default=0.0),
        left=len(free) - len(full) - len(fold),
        taken=len(taken),
        shortfall=shortfall(facts, target),
    )


def _stale(free: Sequence[Group], facts: Facts, target: Target) -> list[Group]:
    """Every group, oldest first, once the oldest would be too old before the next round: the view is as old as its oldest."""
    oldest = max((g.age_s for g in free), default=0.0)
    if target.staleness_s is None or not free or oldest + facts.ahead_s < target.staleness_s:
        return []
    return sorted(free, key=lambda g: -g.age_s)


def _amplified(
    free: Sequence[Group], taken: Sequence[Group], facts: Facts, target: Target
) -> tuple[list[Group], list[Group]]:
    """The groups by score until the target is met up to the next round, and those that go along."""
    if target.read_amplification is None:
        return [], []
    costs = facts.costs
    base = sum(g.written for g in facts.groups)
    bound = (target.read_amplification - 1) * base / costs.log_read
    excess = _logs(facts.groups, facts.ahead_s, {g.key for g in taken}) - bound
    if excess <= 0:
        return [], []
    by_score = sorted(free, key=lambda g: -score(g, costs))
    needed: list[Group] = []
    for group in by_score:
        if excess <= 0:
            break
        needed.append(group)
        excess -= group.log_bytes
    least = ALONG * score(needed[-1], costs) if needed else math.inf
    return needed, [g for g in by_score[len(needed) :] if score(g, costs) >= least]


def _readers_paid(group: Group, facts: Facts) -> bool:
    """Whether reads have spent as much time on the logs of a group as compacting it takes."""
    if facts.reads_per_s is None:
        return False
    costs = facts.costs
    per_read = costs.log_read * group.log_bytes / 2 * costs.base_read_s
    return facts.reads_per_s * group.age_s * per_read >= costs.compacting(group)


def _fitted(
    due: Sequence[Group], stale: Sequence[Group], along: Sequence[Group], allowed: float, facts: Facts
) -> tuple[list[Group], list[Group], float]:
    """What fits into the time: (compacted, logs made one, seconds). Groups that go along come last.

    When not everything that is due fits, each group takes the way that gains more per second. Only compaction cures
    staleness, so what is due for that is compacted, oldest first. The first that does not fit ends the compaction of
    others: time is saved up for it, else many small groups would keep a large one waiting for ever.
    """
    costs = facts.costs
    total = costs.planning + sum(costs.compacting(g) for g in due)
    urgent = {g.key for g in stale}
    ways: list[tuple[bool, float, bool, Group]] = [
        (g.key in urgent, g.age_s if g.key in urgent else _gain(g, costs, False), False, g) for g in due
    ]
    scarce = total > allowed
    if scarce and facts.folds:
        ways += [
            (False, _gain(g, costs, True), True, g)
            for g in due
            if g.key not in urgent and g.log_files >= FOLD_FILES_MIN and _gain(g, costs, True) > 0
        ]
    if scarce:
        ways.sort(key=lambda w: (not w[0], -w[1]))
    ways += [(False, 0.0, False, g) for g in along]
    chosen: tuple[list[Group], list[Group]] = ([], [])
    used = 0.0
    done: set[tuple[str, str]] = set()
    saving = False
    for _, _, folds, group in ways:
        took = (costs.folding(group) if folds else costs.compacting(group)) + (0 if chosen[folds] else costs.planning)
        if group.key in done or (saving and not folds):
            continue
        if used + took <= allowed:
            done.add(group.key)
            chosen[folds].append(group)
            used += took
        elif not folds:
            saving = True
    return chosen[0], chosen[1], used


def _gain(group: Group, costs: Costs, folds: bool) -> float:
    """What readers save, per second of work; as in `score`, weighed by how long they have paid."""
    saved = group.log_bytes * ((1 - group.kept_by_folding) if folds else 1.0)
    return saved * max(group.age_s, 1.0) / (costs.folding(group) if folds else costs.compacting(group))


def _after(facts: Facts, full: Sequence[Group], fold: Sequence[Group]) -> float:
    folded = {g.key: round(g.log_bytes * g.kept_by_folding) for g in fold}
    groups = [replace(g, log_bytes=folded.get(g.key, g.log_bytes)) for g in facts.groups if g.base_bytes]
    bare = [g for g in facts.groups if not g.base_bytes]
    return amplification([*groups, *bare], facts.costs, gone=full)


# ---------------------------------------------------------------- what can be met


def needed_share(facts: Facts, target: Target) -> float:
    """The share of time that compaction needs to keep the targets while writes go on as they do.

    The logs that the read amplification allows are spread over the groups as the square root of rate times cost, which
    takes least time; a staleness target compacts every group once per its span, or as often as the group is written.
    """
    costs = facts.costs
    written = [g for g in facts.groups if g.rate > 0]
    total = sum(g.rate for g in written)
    if not written:
        return 0.0
    spent = [costs.factor * (costs.group_s + max(g.written, 1) * costs.base_byte_s) for g in written]
    often = [0.0] * len(written)
    if target.read_amplification is not None:
        base = sum(g.written for g in facts.groups)
        room = (target.read_amplification - 1) * base / costs.log_read - total * facts.ahead_s
        if room <= 0:
            return math.inf
        roots = sum(math.sqrt(g.rate * c) for g, c in zip(written, spent, strict=True))
        often = [math.sqrt(g.rate / c) * roots / room for g, c in zip(written, spent, strict=True)]
    if target.staleness_s is not None:
        span = target.staleness_s - facts.ahead_s
        if span <= 0:
            return math.inf
        often = [max(o, min(1 / span, g.touches)) for o, g in zip(often, written, strict=True)]
    plans = min(sum(often), 1 / facts.period_s if facts.period_s else math.inf)
    work = sum(o * c for o, c in zip(often, spent, strict=True))
    return work + total * costs.log_byte_s * costs.factor + plans * costs.planning


def shortfall(facts: Facts, target: Target) -> Shortfall | None:
    """Why the targets cannot be met with the budget, None when they can."""
    if target.read_amplification is None and target.staleness_s is None:
        return None
    needed = needed_share(facts, target)
    if needed <= target.budget:
        return None
    enough = math.ceil(needed * _MARGIN * 100) / 100 if math.isfinite(needed) else math.inf
    targets = _affordable(facts, target)
    if enough <= 1 or targets is not None:
        return Shortfall(needed, enough if enough <= 1 else None, targets)
    for budget in (b for b in _BUDGETS if b > target.budget):
        if (both := _affordable(facts, replace(target, budget=budget))) is not None:
            return Shortfall(needed, budget, both, together=True)
    return Shortfall(needed, None, None)


def relaxed(target: Target, by: float) -> Target:
    """The targets, so many times as loose."""
    amp, span = target.read_amplification, target.staleness_s
    return replace(
        target,
        read_amplification=None if amp is None else 1 + (amp - 1) * by,
        staleness_s=None if span is None else span * by,
    )


def _affordable(facts: Facts, target: Target) -> Target | None:
    """The tightest targets, all relaxed alike, that the budget is enough for with a margin; None when none is."""

    def affordable(by: float) -> bool:
        return needed_share(facts, relaxed(target, by)) * _MARGIN <= target.budget

    low, high = 1.0, 2.0
    while not affordable(high):
        low, high = high, high * 2
        if high > _RELAX_MAX:
            return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if affordable(middle) else (middle, high)
    loose = relaxed(target, high)
    return replace(
        loose,
        read_amplification=loose.read_amplification and math.ceil(loose.read_amplification * 100) / 100,
        staleness_s=loose.staleness_s and float(math.ceil(loose.staleness_s)),
    )
