"""What a range weighs in packing, and how many bytes it may have: by what a record took in the run before (2.3).

AVG_RECORD_TIME   records times the mean milliseconds per record of the topic: the geometric mean of its partitions
AVG_RECORD_SIZE   records times the mean bytes per record of the partition
CUSTOM            a person's function over the ranges and the stored state
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lakesql.errors import JobError
from lakesql.ingest.functions import called
from lakesql.ingest.model import Job, Range, State, TopicPartition

FLOOR_MS, CAP_MS = 0.01, 100.0
NOTHING_SEEN_MS = 1.0
NOTHING_SEEN_BYTES = 1024.0
CAP = "kakfa.source.avgFetchTimeCap"
FUNCTION = "kafka.workunit.size.estimator.customizedType"

Floats = npt.NDArray[np.float64]


def expected_bytes(at: Sequence[TopicPartition], records: npt.NDArray[np.int64], stored: State) -> Floats:
    """Records times the partition's mean bytes per record in the run before."""
    known = stored.partitions
    means = [one.average_bytes if (one := known.get(where)) is not None else None for where in at]
    return records.astype(np.float64) * np.array(
        [NOTHING_SEEN_BYTES if mean is None else mean for mean in means], dtype=np.float64
    )


def expected_millis(
    at: Sequence[TopicPartition], records: npt.NDArray[np.int64], stored: State, cap: float = CAP_MS
) -> Floats:
    """Records times the topic's mean milliseconds per record in the run before."""
    by_topic = topic_millis(stored, cap)
    unseen = float(np.exp(np.log(list(by_topic.values())).mean())) if by_topic else NOTHING_SEEN_MS
    return records.astype(np.float64) * np.array([by_topic.get(topic, unseen) for topic, _ in at], dtype=np.float64)


def topic_millis(stored: State, cap: float = CAP_MS) -> dict[str, float]:
    """Milliseconds per record of each topic: the geometric mean of its partitions, each floored and capped."""
    seen = [(at[0], one.average_millis) for at, one in stored.partitions.items() if one.average_millis is not None]
    numbers: dict[str, int] = {}
    of_topic = np.array([numbers.setdefault(topic, len(numbers)) for topic, _ in seen], dtype=np.int64)
    logs = np.log(np.clip(np.array([millis for _, millis in seen], dtype=np.float64), FLOOR_MS, max(cap, FLOOR_MS)))
    means = np.exp(np.bincount(of_topic, logs) / np.bincount(of_topic)) if seen else np.empty(0)
    return dict(zip(numbers, means.tolist(), strict=True))


def weights(job: Job, at: Sequence[TopicPartition], records: npt.NDArray[np.int64], stored: State) -> Floats:
    """Weights by one of the two built-in estimators; a custom one has its say later, over the ranges."""
    if job.estimator == "AVG_RECORD_SIZE":
        return expected_bytes(at, records, stored)
    return expected_millis(at, records, stored, float(job.settings.get(CAP, CAP_MS)))


def custom_weights(job: Job, ranges: Sequence[Range], stored: State) -> list[float]:
    """What the person's function says, checked: one finite number of at least 0 for each range."""
    found = called(job.estimator_function, FUNCTION, tuple(ranges), stored)
    try:
        numbers = [float(weight) for weight in found]
    except (TypeError, ValueError) as error:
        raise JobError(
            f"{FUNCTION} = {job.estimator_function}: the function must return a number for each range ({error}). Correct it."
        ) from error
    if len(numbers) != len(ranges) or not all(0 <= weight < float("inf") for weight in numbers):
        raise JobError(
            f"{FUNCTION} = {job.estimator_function}: the function must return {len(ranges)} finite numbers of at least 0,"
            f" one for each range; it returned {len(numbers)}. Correct it."
        )
    return numbers
