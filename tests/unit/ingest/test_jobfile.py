"""Job files as users of Gobblin have them: properties by the rules of Commons Configuration, defaults by folder, HOCON."""

import logging
import socket
from pathlib import Path

import pytest

from lakesql.errors import JobError
from lakesql.ingest.jobfile import read_job_file
from lakesql.ingest.settings import job_of

JOBS = Path(__file__).parent / "jobs"


def read(folder: Path, text: str, name: str = "j.pull") -> tuple[dict[str, str], tuple[str, ...]]:
    (folder / name).write_text(text)
    return read_job_file(folder / name)


def values(folder: Path, text: str) -> dict[str, str]:
    return dict(read(folder, text)[0])


# ---------------------------------------------------------------- the well-known samples


def test_the_sample_loads_as_printed_and_says_what_it_lacks() -> None:
    settings, notes = read_job_file(JOBS / "PullFromKafka.pull")
    assert settings["extract.limit.type"] == "time"
    assert settings["extract.limit.time.limit.timeunit"] == "minutes"
    assert "kafka.brokers" not in settings
    assert any(
        "extract.limit.type" in note and "'#(other possible values: rate, count, pool)'" in note for note in notes
    )
    assert any("kafka.brokers" in note and "begins with #" in note for note in notes)
    with pytest.raises(
        JobError, match=r"kafka.brokers .*is missing .*PullFromKafka.pull, line 18: the value there begins with #"
    ):
        job_of(settings)


def test_the_sample_with_brokers_and_registry_is_a_job() -> None:
    settings, _ = read_job_file(JOBS / "PullFromKafka.pull")
    settings |= {"kafka.brokers": "b1:9092, b2:9092", "kafka.schema.registry.url": "http://registry"}
    found = job_of(settings)
    job = found.job
    assert (job.name, job.group, job.lock, job.max_tasks, job.bootstrap) == (
        "PullFromKafka",
        "Kafka",
        False,
        20,
        "earliest",
    )
    assert job.client == {"bootstrap.servers": "b1:9092,b2:9092"}
    assert job.limit is not None
    assert (job.limit.kind, job.limit.amount) == ("time", 900)
    assert (job.format.kind, job.format.wire, job.format.registry) == ("avro", "linkedin", "http://registry")
    assert job.whitelist == ("CaptchaEvent",)
    assert (job.target.kind, job.target.path) == ("files", "job-output")
    assert job.target.options["lakesql.files.layout"] == "time"
    assert job.target.options["writer.partition.pattern"] == "YYYY/MM/dd/HH"
    assert found.unused == found.unknown == {}
    assert any("UTC" in note for note in found.notes)


def test_the_quick_start_is_a_job() -> None:
    settings, notes = read_job_file(JOBS / "QuickStart.job")
    found = job_of(settings)
    assert (found.job.format.kind, found.job.target.options["writer.output.format"]) == ("raw", "txt")
    assert found.job.target.options["lakesql.files.layout"] == "task"
    assert found.unknown == {}
    assert {"mr.job.root.dir", "state.store.dir", "metrics.log.dir", "task.data.root.dir"} <= set(found.unused)
    assert notes == ()


# ---------------------------------------------------------------- properties


def test_lines_are_trimmed_joined_and_commented_at_their_beginning_only(tmp_path: Path) -> None:
    found = values(
        tmp_path,
        "# comment\n! comment\n\n  a = 1  \nb:2\nc 3\nd=x # y\ne = one,\\\n    two,\\\n  # between\n three\nf\ng=\\u0041\\tb\\\\c\nh\\=i=j\n",
    )
    assert found == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "x # y",
        "e": "one,two,three",
        "f": "",
        "g": "A\tb\\c",
        "h=i": "j",
    }


def test_a_lost_backslash_is_noted(tmp_path: Path) -> None:
    settings, notes = read(tmp_path, "topic.whitelist=a\\d+\n")
    assert settings["topic.whitelist"] == "ad+"
    assert any("line 1" in note and "\\d" in note for note in notes)
    assert values(tmp_path, "topic.whitelist=a\\\\d+\n")["topic.whitelist"] == "a\\d+"


def test_a_tail_is_cut_only_where_the_value_is_closed(tmp_path: Path) -> None:
    found = values(tmp_path, "mr.job.max.mappers=20 # many\njob.lock.enabled=true  #no\nwriter.partition.level=a #b\n")
    assert found == {"mr.job.max.mappers": "20", "job.lock.enabled": "true", "writer.partition.level": "a #b"}


def test_references_are_resolved_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORK", "/w")
    settings, notes = read(tmp_path, "a=${b}/x\nb=${env:WORK}\nc=${not.there}\nd=${env:NOT_SET_HERE}\n")
    assert settings == {"a": "/w/x", "b": "/w", "c": "${not.there}", "d": "${env:NOT_SET_HERE}"}
    assert any("${not.there}" in note and " c." in note for note in notes)


def test_an_open_reference_in_a_value_that_counts_is_an_error(tmp_path: Path) -> None:
    settings, _ = read(tmp_path, "job.name=j\nlakesql.format=json\nkafka.brokers=${brokers}\n")
    with pytest.raises(JobError, match=r"kafka.brokers = .*j.pull, line 3\): \$\{brokers\} is not set"):
        job_of(settings)


def test_a_reference_to_itself_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"j.pull, line 1.*\$\{b\} refers to itself"):
        read(tmp_path, "a=${b}\nb=${a}\n")


def test_includes_are_read_in_place(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "more.inc").write_text("a=2\nb=2\n")
    found = values(tmp_path, "a=1\nb=1\ninclude = sub/more.inc\nb=3\nincludeoptional=absent.inc\n")
    assert found == {"a": "2", "b": "3"}


def test_includes_that_are_absent_or_endless_are_errors(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"j.pull, line 2: the included file .*absent.inc is not there"):
        read(tmp_path, "a=1\ninclude=absent.inc\n")
    (tmp_path / "x.inc").write_text("include=j.pull\n")
    with pytest.raises(JobError, match=r"x.inc, line 1: .*j.pull includes itself"):
        read(tmp_path, "include=x.inc\n")


def test_a_list_on_two_lines_is_one_and_of_others_the_last_holds(tmp_path: Path) -> None:
    settings, notes = read(
        tmp_path, "topic.whitelist=a\nmr.job.max.mappers=1\ntopic.whitelist=b\nmr.job.max.mappers=2\n"
    )
    assert settings == {"topic.whitelist": "a,b", "mr.job.max.mappers": "2"}
    assert any("mr.job.max.mappers is set twice" in note and "line 4 holds" in note for note in notes)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a=1\n=2\n", "line 2: there is no name"),
        ("a=1\nb=\\u12\n", r"line 2: \\u must"),
        ("a=\xff\n", "line 1: this is not UTF-8"),
    ],
)
def test_what_cannot_be_read_is_told_by_file_and_line(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "j.pull").write_bytes(text.encode("latin-1"))
    with pytest.raises(JobError, match=rf"j.pull, {error}"):
        read_job_file(tmp_path / "j.pull")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="a job file ends in"):
        read_job_file(tmp_path / "j.yaml")
    with pytest.raises(JobError, match="no such job file"):
        read_job_file(tmp_path / "j.pull")


def test_wrong_values_are_told_by_file_and_line(tmp_path: Path) -> None:
    settings, _ = read(tmp_path, "job.name=j\nkafka.brokers=h\n\nlakesql.format=json\nmr.job.max.mappers=many\n")
    with pytest.raises(JobError, match=r"mr.job.max.mappers = 'many' \(.*j.pull, line 5\): must be a whole number"):
        job_of(settings)


# ---------------------------------------------------------------- defaults


def test_folders_give_defaults_and_nearer_ones_win(tmp_path: Path) -> None:
    (tmp_path / "root" / "kafka").mkdir(parents=True)
    (tmp_path / "outside.properties").write_text("a=0\nz=0\n")
    (tmp_path / "root" / "common.properties").write_text("a=1\nb=1\nc=1\n")
    (tmp_path / "root" / "kafka" / "kafka.properties").write_text("b=2\nc=2\nd=${a}\n")
    (tmp_path / "root" / "kafka" / "j.job").write_text("c=3\n")
    settings, notes = read_job_file(tmp_path / "root" / "kafka" / "j.job", root=tmp_path / "root")
    assert settings == {"a": "1", "b": "2", "c": "3", "d": "1"}
    assert [note.rsplit("/", 1)[-1] for note in notes] == ["common.properties.", "kafka.properties."]
    assert settings.places["b"].endswith("kafka.properties, line 1")
    alone, _ = read_job_file(tmp_path / "root" / "kafka" / "j.job")
    assert alone == {"b": "2", "c": "3", "d": "${a}"}


def test_two_files_of_defaults_in_a_folder_are_an_error(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.properties").write_text("x=1\n")
    with pytest.raises(JobError, match="more than one file of default properties"):
        read(tmp_path, "y=1\n")
    assert read_job_file(tmp_path / "a.properties")[0] == {"x": "1"}  # as a job itself
    with pytest.raises(JobError, match="is not a folder above it"):
        read_job_file(tmp_path / "a.properties", root=tmp_path / "elsewhere")


# ---------------------------------------------------------------- HOCON


def test_hocon_is_flattened_to_dotted_names(tmp_path: Path) -> None:
    text = """
    # comment
    job { name = pull, lock.enabled = true }
    kafka.brokers = ["a:1", "b:2"]
    mr.job.max.mappers = 7
    work = /w
    data.publisher.final.dir = ${work}/out
    dataset.specific.props = [{dataset = a, extract.table.name = A}]
    """
    settings, _ = read(tmp_path, text, "j.conf")
    assert settings["job.name"] == "pull"
    assert settings["job.lock.enabled"] == "true"
    assert settings["kafka.brokers"] == "a:1,b:2"
    assert settings["mr.job.max.mappers"] == "7"
    assert settings["data.publisher.final.dir"] == "/w/out"
    assert settings["dataset.specific.props"] == '[{"dataset": "a", "extract.table.name": "A"}]'


def test_json_is_read_too(tmp_path: Path) -> None:
    assert read(tmp_path, '{"job.name": "j", "kafka": {"brokers": "h:1"}, "a.b": false}', "j.json")[0] == {
        "job.name": "j",
        "kafka.brokers": "h:1",
        "a.b": "false",
    }


@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")  # pyhocon's
@pytest.mark.parametrize("nested", [False, True])
def test_an_include_by_url_that_cannot_be_reached_is_an_error_and_not_empty(tmp_path: Path, nested: bool) -> None:
    pytest.importorskip("pyhocon")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    (tmp_path / "far.conf").write_text(f'include url("http://me:pw@127.0.0.1:{port}/x.conf")\n')
    text = 'include "far.conf"\na = 1\n' if nested else (tmp_path / "far.conf").read_text() + "a = 1\n"
    logging.getLogger("pyhocon.config_parser").setLevel(logging.CRITICAL)
    with pytest.raises(
        JobError, match=rf"j.conf: what it includes from http://\*\*\*@127.0.0.1:{port}/x.conf cannot be reached"
    ):
        read(tmp_path, text, "j.conf")
    assert read(tmp_path, 'include "absent.conf"\na = 1\n', "j.conf")[0] == {"a": "1"}  # as HOCON says of files


def test_references_and_includes_that_multiply_are_errors(tmp_path: Path) -> None:
    doubling = "".join(f"a{i}=${{a{i + 1}}}${{a{i + 1}}}\n" for i in range(40))
    with pytest.raises(JobError, match="references within references"):
        read(tmp_path, doubling + "a40=x")
    with pytest.raises(JobError, match="references within references"):
        read(tmp_path, "".join(f"a{i}=${{a{i + 1}}}\n" for i in range(3000)))
    for i in range(60):
        (tmp_path / f"i{i}.pull").write_text(f"include=i{i + 1}.pull")
    with pytest.raises(JobError, match=r"i\d+\.pull, line 1: files include each other"):
        read(tmp_path, "include=i0.pull", "first.pull")


@pytest.mark.parametrize(
    "text",
    ["a = {\nb = 1\n", "a = ${not.there}\n", "[1, 2]", 'include "j.conf"', 'include package("x:y")', '{"a":' * 3000],
)
def test_broken_hocon_names_the_file(tmp_path: Path, text: str) -> None:
    with pytest.raises(JobError, match=r"j.conf"):
        read(tmp_path, text, "j.conf")
