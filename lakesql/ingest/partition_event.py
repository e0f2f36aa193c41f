"""What the event KafkaExtractorTopicMetadata says of a partition at the end of a run, under the reference's names (2.7).

Times are milliseconds of this run: fetchMessageBufferTime in the client, decodeRecordTime in the decoder, convertRecordTime
until the target had the rows, readRecordTime all that the task spent on the partition, waiting for records included. The
client fetches in a thread of its own, so the sum of the parts may be more than the whole. A decoded batch of several
partitions is shared out by records.

`gaps` are ranges of offsets whose records were deleted before they were read, each by itself, and `lostRecordCount` their
offsets in sum. Offsets that never had a record to read, of transactions and of compacted topics, are holes and not in it.
"""

from typing import Any

from lakesql.ingest.model import PartitionReport
from lakesql.ingest.tracks import Track


def facts_of(track: Track, line: PartitionReport, with_sla: bool) -> dict[str, Any]:
    """The facts of the event. What is not known is -1; so are late records when no age is set."""
    done, before = track.kept.plus(track.held), track.before
    gaps = track.all_gaps
    return {
        "namespace": "gobblin.kafka",
        "topic": line.topic,
        "partition": line.partition,
        "lowWatermark": line.low,
        "actualHighWatermark": line.next,
        "expectedHighWatermark": line.high,
        "previousLowWatermark": before.low if before else -1,
        "previousHighWatermark": before.next if before else -1,
        "processedRecordCount": done.read,
        "undecodableMessageCount": done.bad,
        "nullRecordCount": done.deletes,
        "slaMissedRecordCount": done.late if with_sla else -1,
        "partitionTotalSize": done.bytes,
        "avgRecordSize": done.bytes / done.read if done.read else 0,
        "avgRecordPullTime": done.seconds * 1000 / done.read if done.read else 0,
        "readRecordTime": round(done.seconds * 1000, 3),
        "fetchMessageBufferTime": round(done.fetch_s * 1000, 3),
        "decodeRecordTime": round(done.decode_s * 1000, 3),
        "convertRecordTime": round(done.convert_s * 1000, 3),
        "minTimestamp": -1 if track.oldest_ms is None else track.oldest_ms,
        "maxTimestamp": -1 if track.newest_ms is None else track.newest_ms,
        "lostRecordCount": sum(to - begin for begin, to in gaps),
        "gaps": [list(gap) for gap in gaps],
    }
