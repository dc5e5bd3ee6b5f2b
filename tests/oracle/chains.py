"""Chains: commands in one workspace, drawn by a seed, each compared with the model."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.addons.viewer.stored_results import differences as differing
from tests.oracle.model import TOKENS, Baseline, Outcome, Run, Said, Session, ended, outcome
from tests.oracle.server import Script
from tests.plugin.workspaces import Workspace, hosts_under, junit_cases, read_json, toml, wait_until

AGENT = """
async def rollout(ctx):
    reply = await ctx.chat(ctx.prompt)
    if str(reply.message["content"]).startswith("crash"):
        raise RuntimeError(reply.message["content"])
    return [*ctx.prompt, reply.message]
"""
REWARDS = """
async def score(solution_str, ground_truth, extra_info=None, **kwargs):
    if solution_str.startswith("unscorable"):
        {unscorable}
    score = float(solution_str)
    return {score}
"""
VERSIONS = {
    "plain": REWARDS.format(unscorable="raise ValueError(solution_str)", score="score"),
    "lenient": REWARDS.format(unscorable="return 0.0", score="max(score, 0.5)"),
    "strict": REWARDS.format(unscorable="raise ValueError(solution_str)", score="float(score >= 1.0)"),
}
CONFIG = "configs/eval/x.toml"
BASELINE = "base.json"
Gates = Mapping[str, float]


OF_COMMANDS = {"baseline", "changed_rows", "gates", "provenance"}
"""Members of results that also follow the baseline's file, which may be another by now, or a command without a run."""


@dataclass
class Stored:
    """An eval run as it must be stored: the last word to each run, and the version of the prompt that it answered."""

    said: dict[Run, tuple[Said, int]] = field(default_factory=dict)
    selected: set[Run] = field(default_factory=set)
    plan: set[Run] = field(default_factory=set)
    unrecorded: set[Run] = field(default_factory=set)
    uncertain: set[Run] = field(default_factory=set)
    """Runs that were answered in a session that was killed: they may be stored, or lost."""
    shard: tuple[int, int] | None = None

    @property
    def whole(self) -> bool:
        return self.selected >= self.plan


class Seen(NamedTuple):
    status: int
    output: str


class Chain:
    """One workspace, and what the model knows of it. `problems` are the steps that differed from the model.

    `met` are the situations that it met and that earlier versions got wrong.
    """

    def __init__(self, workspace: Workspace, script: Script, base_url: str, seed: int) -> None:
        self.workspace, self.script, self.base_url = workspace, script, base_url
        self.chance = random.Random(seed)
        self.n_rows = self.chance.randint(6, 9)
        self.n = self.chance.choice([1, 1, 2, 3])
        self.batch = self.chance.choice([1, 4])
        self.content = dict.fromkeys(range(self.n_rows), 0)
        self.stored: dict[str, Stored] = {}
        self.baseline: Baseline | None = None
        self.cassette: dict[Run, tuple[Said, int]] = {}
        self.steps: list[str] = []
        self.problems: list[str] = []
        self.met: set[str] = set()
        self.given = ""
        self.set_rewards("plain")
        workspace.write("agent.py", AGENT)

    # -- the workspace -------------------------------------------------------------------------------------

    def set_rewards(self, version: str) -> None:
        self.rewards = version
        self.workspace.write("rewards.py", VERSIONS[version])

    def gates(self) -> Gates:
        """Draw up to two gates, often of none, near to what the usual answers reach."""
        names = ["pass_rate", "mean", *(["pass_at_2", "pass_hat_2"] if self.n > 1 else [])]
        n = self.chance.choice([0, 0, 1, 2])
        return {name: self.chance.choice([0.2, 0.5, 0.7, 0.9]) for name in self.chance.sample(names, n)}

    def write(self, gates: Gates, path: str = CONFIG, **tables: Mapping[str, Any]) -> None:
        rows = [{"user_prompt": f"Row {row}, version {v}?", "ground_truth": "x"} for row, v in self.content.items()]
        self.workspace.write("data/x.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        conditions = {name: least if name == "max_regression" else f">= {least}" for name, least in gates.items()}
        headers = {"x-row": "row_index", "x-run": "run_index"}
        given: dict[str, Mapping[str, Any]] = {
            "agent": {"agent": "agent:rollout"},
            "model": {"base_url": self.base_url, "max_retries": 1, "headers_from_state": headers},
            **({"gate": conditions} if gates else {}),
            **tables,
        }
        self.given = f"{path}: gates {dict(gates)}, {tables}; rewards {self.rewards}, faults {self.script.faults}"
        self.workspace.write(path, toml("x", {"experiment": {"model_path": "served"}, **given}))

    def pytest(self, *words: str, path: str = CONFIG) -> Seen:
        """Run pytest on the config. `script.log` has what the server said then."""
        self.script.log.clear()
        self.steps.append(f"pytest {' '.join(words)}\n     {self.given}")
        words = (f"--osmosis-config={path}", "--osmosis-no-probe", "-pno:cacheprovider", "--junitxml=junit.xml", *words)
        (self.workspace.root / "junit.xml").unlink(missing_ok=True)
        result = self.workspace.run(*words)
        return Seen(int(result.ret), f"{result.stdout}\n{result.stderr}")

    def cli(self, *words: str) -> Seen:
        self.steps.append(f"pytest-osmosis {' '.join(words)}")
        result = self.workspace.cli(*words)
        return Seen(int(result.ret), f"{result.stdout}\n{result.stderr}")

    # -- steps ---------------------------------------------------------------------------------------------

    def run(
        self,
        name: str,
        *words: str,
        gates: Gates | None = None,
        n: int | None = None,
        rows: Iterable[int] | None = None,
        select: Iterable[int] | None = None,
        shard: tuple[int, int] | None = None,
        limits: Mapping[str, Any] | None = None,
        resume: bool = False,
        replay: bool = False,
        updates: bool = False,
        compares: bool = False,
    ) -> tuple[Session, Path]:
        """Begin the eval run `name`, or go on with it. Return what it must have measured, and its results file.

        With `resume` it goes on without a name, if that run is the newest and has something left.
        """
        gates, limits = gates or {}, {"max_errors": "100%", **(limits or {})}
        stored = self.stored.setdefault(name, Stored(shard=shard))
        planned = list(self.content if rows is None else rows)
        mine = planned if shard is None else planned[shard[0] - 1 :: shard[1]]
        plan = [(row, index) for row in mine for index in range(n or self.n)]
        selected = [run for run in plan if select is None or run[0] in select]
        stored.plan, stored.selected = set(plan), stored.selected.union(selected)
        kept = {run for run in selected if run in stored.said and not self._goes_again(stored, run)}
        tables: dict[str, Any] = {"baseline": {"results": BASELINE}} if updates or compares else {}
        if "max_cost_usd" in limits:
            tables["prices"] = {"served": {"input": 1, "output": 1}}
        evaluation = {"n": n or self.n, "batch_size": self.batch}
        data = {"rows": ",".join(map(str, planned))}
        self.write(gates, evaluation=evaluation, limits=limits, data=data, **tables)
        unnamed = resume and not kept.issuperset(selected)
        given = ["--osmosis-resume" if unnamed else f"--osmosis-run={name}", *words]
        given += [] if select is None else ["-k", " or ".join(f"row{row}-" for row in select)]
        given += [] if shard is None else [f"--osmosis-shard={shard[0]}/{shard[1]}"]
        given += ["--osmosis-replay"] * replay + ["--osmosis-update-baseline"] * updates
        refused = self._refused(stored, selected, replay=replay, compares=compares and not updates)
        seen, path = self._in_file(given)
        if refused:
            self.check(seen, refused, 4, asked=set())
            return Session({}, {}), path
        if replay:
            self._replayed(stored, selected)
        else:
            may_stop = limits.keys() != {"max_errors"} or limits["max_errors"] != "100%"
            to_do = {*selected} - kept
            self._noted(stored, to_do | stored.uncertain, None if may_stop else to_do - stored.uncertain)
            stored.uncertain.clear()
        session = self.session(stored, selected, gates, whole=select is None, updates=updates)
        session.max_errors = float(limits["max_errors"].rstrip("%")) / 100
        lacks = any(each is None for each in session.outcomes.values())
        most = limits.get("max_tokens", limits.get("max_cost_usd", 0) * 1e6)
        session.stopped = "a limit" if lacks and most and not session.too_many else None
        self._spent(stored, most, session)
        session.baseline = self.baseline if compares else None
        if compares and session.verdicts().get("max_regression") == "not measured" and not session.unmeasured:
            self.met.add("few common rows")
        self.check(seen, "a run", session.status(), path=path, session=session, asked=set() if replay else None)
        if path.exists():
            expected = "failed" if session.too_many else "stopped" if session.stopped else "finished"
            self.expect(read_json(path)["status"], expected, "status in the results of a run")
        if updates:
            self._updated(session)
        return session, path

    def _spent(self, stored: Stored, most: float, session: Session) -> None:
        """Check that a session stopped neither before its limit left no room for another run, nor much later."""
        spent = TOKENS * sum(said.status == 200 for said, _ in stored.said.values())
        flight = TOKENS * self.batch
        if any(each is None for each in session.outcomes.values()):
            self.expect(session.too_many or spent + flight + TOKENS > most > 0, True, f"a stop after {spent} tokens")
        self.expect(most == 0 or spent < most + flight, True, f"{spent} tokens where {most} are the limit")

    def _goes_again(self, stored: Stored, run: Run) -> bool:
        return outcome(stored.said[run][0], self.rewards).boundary == "provider"

    def _refused(self, stored: Stored, selected: Sequence[Run], *, replay: bool, compares: bool) -> str | None:
        if any(version != self.content.get(run[0], version) for run, (_, version) in stored.said.items()):
            return "a resume with other prompts"
        if compares and self.baseline is None:
            return "a comparison without a baseline that fits"
        if replay and not self.cassette:
            return "a replay without a cassette"
        return None

    def _noted(self, stored: Stored, to_do: set[Run], must: set[Run] | None) -> None:
        """Take over what the server said, and check that it was asked what it had to be, and nothing else."""
        asked = dict(self.script.log)
        self.expect(asked.keys() - to_do, set(), "runs asked for that were stored, or not selected")
        if must is not None:
            self.expect(must - asked.keys(), set(), "runs that were not asked for")
        for run, said in asked.items():
            try:
                word = ended(said)
            except ValueError as error:
                self.problem(f"{run}: {error}")
                continue
            self.expect(word is None, False, f"no end of {run}")
            if word is not None:
                stored.said[run] = word, self.content[run[0]]

    def _replayed(self, stored: Stored, selected: Iterable[Run]) -> None:
        for run in selected:
            said, version = self.cassette.get(run, (None, 0))
            if said is None or version != self.content[run[0]]:
                if said is not None:
                    stored.unrecorded.add(run)
                said = Said(500, "not recorded")
            stored.said[run] = said, self.content[run[0]]

    def session(
        self, stored: Stored, selected: Iterable[Run], gates: Gates, *, whole: bool, updates: bool = False
    ) -> Session:
        """Return the model's session over stored runs, as the reward function of now scores them."""
        outcomes: dict[Run, Outcome | None] = {}
        for run in selected:
            said, version = stored.said.get(run, (None, 0))
            fits = said is not None and version == self.content.get(run[0])
            outcomes[run] = outcome(said, self.rewards) if said is not None and fits else None
        unrecorded = bool(stored.unrecorded & outcomes.keys())
        answered = {run for run in outcomes if run in stored.said and stored.said[run][0].status == 200}
        shard, content = stored.shard is not None, dict(self.content)
        return Session(
            outcomes, gates, whole, shard, updates, unrecorded=unrecorded, content=content, answered=answered
        )

    def _updated(self, session: Session) -> None:
        file = self.workspace.root / BASELINE
        before = self.baseline
        if session.becomes_baseline:
            self.baseline = baseline_of(session)
        else:
            self.met.add("a baseline with unmeasured runs")
        self.expect(file.exists(), self.baseline is not None, "a file of the baseline")
        if before is None and not session.becomes_baseline:
            file.unlink(missing_ok=True)

    def kill(self, name: str, *, number: signal.Signals, after: int) -> None:
        """Begin the eval run `name`, or go on with it, in a process that gets a signal after some requests."""
        stored = self.stored.setdefault(name, Stored())
        stored.plan = stored.selected = {(row, index) for row in self.content for index in range(self.n)}
        kept = {run for run in stored.said if not self._goes_again(stored, run)}
        self.write({}, evaluation={"n": self.n, "batch_size": self.batch}, limits={"max_errors": "100%"})
        self.script.log.clear()
        words = [f"--osmosis-config={CONFIG}", "--osmosis-no-probe", "-pno:cacheprovider", f"--osmosis-run={name}"]
        self.steps.append(f"{number.name} after {after} requests: {name}")
        process = self.workspace.start(*words)
        process.wait_for("collected")
        wait_until(lambda: process.ended or sum(map(len, self.script.log.values())) >= after, "requests")
        if number == signal.SIGKILL:
            process.kill()
        else:
            process.interrupt()
            status = process.wait()
            late = stored.plan <= self.script.log.keys() | stored.said.keys()
            self.expect(status == 2 or late, True, f"status {status} of an interrupt: {process.output}")
        wait_until(lambda: not hosts_under(self.workspace.root), "the end of all hosts")
        asked = {run: word for run, said in self.script.log.items() if (word := ended(said)) is not None}
        self.expect(self.script.log.keys() & kept - stored.uncertain, set(), "stored runs that were asked for again")
        stored.said.update({run: (word, self.content[run[0]]) for run, word in asked.items()})
        stored.uncertain |= asked.keys()

    def rescore_killed(self, name: str) -> None:
        """Score what a killed session left: runs that were answered then may be lost."""
        self.write({}, limits={"max_errors": "100%"})
        seen, path = self._in_file([f"--osmosis-from={name}"])
        if not path.exists():
            self.check(seen, "a rescore of nothing", 4, asked=set())
            return
        stored = self.stored[name]
        lost = stored.uncertain - runs_of(read_json(path)).keys()
        left = Stored({run: said for run, said in stored.said.items() if run not in lost})
        session = self.session(left, stored.plan, {}, whole=True)
        self.check(seen, "a rescore of a killed run", session.status(), path=path, session=session, asked=set())

    def rescore(self, name: str, *, gates: Gates | None = None, select: Iterable[int] | None = None) -> None:
        gates, stored = gates or {}, self.stored[name]
        self.write(gates, limits={"max_errors": "100%"})
        chosen = sorted(run for run in stored.plan if select is None or run[0] in select)
        given = [] if select is None else ["-k", " or ".join(f"row{row}-" for row in select)]
        seen, path = self._in_file([f"--osmosis-from={name}", *given])
        session = self.session(stored, chosen, gates, whole=select is None and stored.whole)
        session.may_lack = frozenset(stored.plan - stored.selected)
        if session.unrecorded:
            self.met.add("a replay that is rescored")
        lacks = {run for run, each in session.outcomes.items() if each is None} - session.may_lack
        if lacks and not gates:
            self.met.add("changed prompts" if lacks <= stored.said.keys() else "a run that was stopped")
        scorable = any(each is not None and each.boundary in (None, "reward") for each in session.outcomes.values())
        if not scorable:  # its other rollouts may still be reported
            self.expect(seen.status in (4, session.status()), True, f"status {seen.status} of nothing to score")
            return
        self.check(seen, "a rescore", session.status(), path=path, session=session, asked=set())

    def merge(self, files: Sequence[tuple[Session, Path]], *, of: int, tampered: bool = False) -> None:
        """Merge shards, whose results all have the same gates."""
        path = Path(f"out/{len(self.steps)}.json")
        self.script.log.clear()
        seen = self.cli("merge", *(str(file.relative_to(self.workspace.root)) for _, file in files), "-o", str(path))
        if tampered:
            self.met.add("a shard that lacks runs")
            self.check(seen, "a merge of contradictory files", 4, asked=set())
            return
        parts = [session for session, _ in files]
        session = Session(
            {run: each for part in parts for run, each in part.outcomes.items()},
            parts[0].gates,
            whole=len(files) == of and all(part.whole for part in parts),
            stopped=next((part.stopped for part in parts if part.stopped), None),
            max_errors=parts[0].max_errors,
            unrecorded=any(part.unrecorded for part in parts),
            baseline=parts[0].baseline,
            content=parts[0].content,
            answered=frozenset().union(*(part.answered for part in parts)),
        )
        if session.unrecorded:
            self.met.add("a replay that is merged")
        if len(files) == of and not session.whole:
            self.met.add("a shard of selected runs")
        self.check(seen, "a merge", session.status(merged=True), path=self._results(path), session=session, junit=False)

    # -- comparing -----------------------------------------------------------------------------------------

    def _in_file(self, words: Sequence[str]) -> tuple[Seen, Path]:
        path = Path(f"out/{len(self.steps)}.json")
        seen = self.pytest(*words, f"--osmosis-output={path}")
        return seen, self._results(path)

    def _results(self, path: Path) -> Path:
        """Return the file of results: those of a part have a name of their own."""
        file = self.workspace.root / path
        return file if file.exists() else file.with_suffix(".partial.json")

    def _same_everywhere(self, path: Path, what: str) -> None:
        """Compare the results of an eval run with those that are made of its journal, and that lists and pages show."""
        results = read_json(path)
        run = self.workspace.root / results["provenance"]["run_dir"]
        kept = run / "results.json"
        if not kept.exists() or read_json(kept) != results:
            return
        n_tokens = results["summary"]["total_tokens"]
        made = self._in_json("runs", "export", run.name)
        here, there = ({key: each[key] for key in each.keys() - OF_COMMANDS} for each in (results, made))
        self.expect(list(differing(here, there)), [], f"what runs export makes otherwise of {what}")
        listed = next(each for each in self._in_json("runs", "--json")["runs"] if each["name"] == run.name)
        self.expect(listed["tokens"], n_tokens, f"tokens in the list of {what}")
        shown = str(self.workspace.cli("show", run.name).stdout)
        self.expect(n_tokens == 0 or f"{n_tokens:,} tokens" in shown, True, f"{n_tokens} tokens on the page of {what}")

    def _in_json(self, *words: str) -> Any:
        return json.loads(self.workspace.cli(*words).stdout.str())

    def problem(self, text: str) -> None:
        self.problems.append(f"step {len(self.steps)}, {self.steps[-1].splitlines()[0]}\n    {text}")

    def expect(self, seen: object, expected: object, what: str) -> None:
        if seen != expected:
            self.problem(f"{what}: expected {expected}, seen {seen}")

    def check(
        self,
        seen: Seen,
        what: str,
        status: int,
        *,
        path: Path | None = None,
        session: Session | None = None,
        asked: set[Run] | None = None,
        junit: bool = True,
    ) -> None:
        n_before = len(self.problems)
        self.expect(seen.status, status, f"exit status of {what}")
        if asked is not None:
            self.expect(set(self.script.log), asked, f"runs asked for by {what}")
        if session is not None and path is not None:
            if path.exists():
                for name, value in differences(read_json(path), session):
                    self.expect(*value, f"{name} in the results of {what}")
                if junit:
                    self._same_everywhere(path, what)
            else:
                self.problem(f"no results of {what}")
            if junit:
                self.expect(*tests_of(self.workspace.root / "junit.xml", session), f"tests of {what}")
        if len(self.problems) > n_before:
            self.problems[-1] += "\n    | " + "\n    | ".join(seen.output.strip().splitlines()[-25:])


# -- results and tests, beside those that the model says ------------------------------------------------------------


def baseline_of(session: Session) -> Baseline:
    rows: dict[tuple[int, int], list[bool | None]] = {}
    for (row, _), each in session.outcomes.items():
        passed = each.passed if each is not None and each.measured else None
        rows.setdefault((row, session.content[row]), []).append(passed)
    return rows


def differences(results: Mapping[str, Any], session: Session) -> Iterable[tuple[str, tuple[object, object]]]:
    """Yield what the results hold by its name, as seen and as the model says."""
    runs = runs_of(results)
    expected = {run: (e.boundary, None if e.boundary else e.score, e.passed) for run, e in session.ended.items()}
    yield "differing runs", (_only(runs, expected), _only(expected, runs))
    pending = {(each["row_index"], each["run_index"]) for each in results["pending"]}
    missing = {run for run, each in session.outcomes.items() if each is None}
    yield "pending runs", (pending - session.may_lack, missing - session.may_lack)
    yield "partial", (results["partial"], not session.whole or session.shard)
    yield "verdicts", ({each["gate"].split(" ")[0]: each["state"] for each in results["gates"]}, session.verdicts())
    summary, counts = results["summary"], session.counts
    mean = summary["eval_fns"]["rewards:score"]["mean"]
    for name in ("measured", "boundaries", "rolled_out_again"):
        yield name, (summary[name], counts[name])
    for name, value in (("pass_rate", summary["pass_rate"]), ("mean", mean)):
        yield name, (_rounded(value), _rounded(counts[name]))
    yield "total_tokens", (summary["total_tokens"], TOKENS * len(session.answered))


def runs_of(results: Mapping[str, Any]) -> dict[Run, object]:
    return {
        (row["row_index"], run["run_index"]): (run.get("boundary"), run["scores"].get("rewards:score"), run["passed"])
        for row in results["rows"]
        for run in row["runs"]
    }


def _only(these: Mapping[Run, object], those: Mapping[Run, object]) -> dict[Run, object]:
    return {run: value for run, value in these.items() if those.get(run) != value}


def _rounded(value: Any) -> float | None:
    return None if value is None else round(float(value), 9)


def tests_of(file: Path, session: Session) -> tuple[dict[str, str], dict[str, str]]:
    """Return the outcomes of tests that differ, seen and expected. Tests of stops and the like may come on top."""
    expected = session.tests()
    seen = {}
    for name, case in junit_cases(file).items() if file.exists() else ():
        test = name.removeprefix("x[").removesuffix("]")
        key = " ".join(test.split(" ")[:2]) if test.startswith("gate ") else test
        if key in expected:
            seen[key] = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
    differing = [name for name in expected if seen.get(name) != expected[name]]
    return {name: seen.get(name, "none") for name in differing}, {name: expected[name] for name in differing}
