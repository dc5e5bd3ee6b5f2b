"""A value that equals a secret stands where another value is expected: messages do not quote it.

The search after each test looks for the values in everything that was printed or written.
"""

from __future__ import annotations

import json

import pytest

from tests.hostile.workspaces import API_KEY, CONFIG, HostileWorkspace
from tests.servers import ChatServer, reply

TOKEN = "team/token+of.ours=7b1"
HEADER = "header-secret-of-ours"
LONG = "eyJhbGciOi." + "Zm9vYmFyYmF6cXV4" * 30


TELLS_EVERYTHING = """
import os, sys, logging, warnings
print(os.environ['TEAM_TOKEN'], file=sys.stderr)

def score(solution_str, ground_truth, extra_info=None, **kwargs):
    print(os.environ['GROQ_API_KEY'], end='\\n::error::')
    logging.error(os.environ['LONG_TOKEN'])
    warnings.warn(os.environ['OPENAI_API_KEY'])
    os.system('echo $TEAM_TOKEN')
    if extra_info.get('reward'):
        raise ValueError({name: os.environ[name] for name in ('TEAM_TOKEN', 'LONG_TOKEN', 'OPENAI_API_KEY')})
    return 0.0
"""


@pytest.fixture
def secrets(hostile: HostileWorkspace) -> HostileWorkspace:
    """A workspace with three more secrets: named by the config, very long, and a provider's that nobody names."""
    hostile.secret("TEAM_TOKEN", TOKEN)
    hostile.secret("LONG_TOKEN", LONG)
    hostile.secret("GROQ_API_KEY", "gsk_nobody_names_this_one_0451")
    return hostile


BROKEN = f"""
[experiment]
model_path = "{API_KEY}"
dataset = "{API_KEY}"
commit_sha = "{TOKEN}"
[evaluation]
n = "{API_KEY}"
batch_size = ["{TOKEN}", "gsk_nobody_names_this_one_0451"]
pass_threshold = "{LONG}"
{API_KEY} = 1
["{TOKEN}"]
x = 1
[model]
base_url = "ftp://user:{API_KEY}@host"
api_key_env = "TEAM_TOKEN"
client = "{API_KEY}"
headers = {{Authorization = "Bearer {HEADER}", X = 3}}
[sampling]
stop = {{a = "{TOKEN}"}}
temperature = "bearer {HEADER}"
[scoring]
eval_fns = ["{API_KEY}"]
decide = "{TOKEN}"
[gate]
pass_rate = "{API_KEY}"
[secrets]
required = ["LONG_TOKEN", "{API_KEY}"]
"""


def test_problems_of_a_config_do_not_quote_secrets(secrets: HostileWorkspace) -> None:
    secrets.secrets["header"] = HEADER
    secrets.write("configs/eval/x.toml", BROKEN)
    result = secrets.run(CONFIG, f"--osmosis-n={API_KEY}", f"--osmosis-set=evaluation.limit={TOKEN}")
    assert result.ret == 4
    assert "[OPENAI_API_KEY]" in result.stderr.str()


def test_problems_of_a_file_that_is_not_toml_do_not_quote_secrets(secrets: HostileWorkspace) -> None:
    secrets.write("configs/eval/x.toml", BROKEN + f'\n{TOKEN} = = "{API_KEY}"\n')
    assert secrets.run(CONFIG).ret == 4
    assert secrets.run(f"--osmosis-config={API_KEY}.toml").ret == 4
    assert secrets.run(CONFIG, f"--osmosis-max-in-flight={API_KEY}", f"--osmosis-from={API_KEY}").ret == 4


def test_problems_of_rows_do_not_quote_secrets(secrets: HostileWorkspace) -> None:
    secrets.eval(secrets={"required": ["TEAM_TOKEN", "LONG_TOKEN"]})
    rows = [
        {"user_prompt": 1, "ground_truth": API_KEY, TOKEN: API_KEY},
        {"user_prompt": [API_KEY]},
        {"user_prompt": {TOKEN: LONG}},
        {"messages": [{"role": API_KEY, "content": 3}]},
        {"messages": API_KEY},
    ]
    lines = [json.dumps(row) for row in rows]
    secrets.write("data/x.jsonl", "\n".join([*lines, f'{{"user_prompt": "{API_KEY}', f"{TOKEN} {LONG}"]) + "\n")
    assert secrets.run(CONFIG).ret == 4
    secrets.eval("y", data={"path": "data/y.csv", "columns": {"user_prompt": API_KEY}})
    secrets.write("data/y.csv", f"{API_KEY},{TOKEN}\n1,2,3,{API_KEY}\n")
    assert secrets.run("--osmosis-config=configs/eval/y.toml").ret == 4


def test_header_summary_and_reports_do_not_quote_secrets(secrets: HostileWorkspace) -> None:
    """The values are where they are valid: the eval runs, and its text goes everywhere."""
    secrets.eval(
        rows=[{"user_prompt": f"What is 1 * 2? {API_KEY}", "ground_truth": TOKEN, "score": 0.0}, {"reward": "raises"}],
        secrets={"required": ["TEAM_TOKEN", "LONG_TOKEN"]},
        sampling={"stop": [API_KEY], "extra_body": {"a": TOKEN, LONG: "x"}},
        experiment={"model_path": "demo/arithmetic"},
        env={"SOME_VALUE": "plain"},
    )
    secrets.write("rewards.py", TELLS_EVERYTHING)
    result = secrets.run(
        CONFIG, "--osmosis-markdown=page.md", "--junitxml=junit.xml", "-rA", f"--osmosis-set=sampling.seed={7}"
    )
    assert result.ret == 9
    assert "[GROQ_API_KEY]" in result.stdout.str()
    secrets.show_everything("row0-run0", "row1-run0")
    assert secrets.run("--osmosis-from=latest", f"--osmosis-pass-threshold={API_KEY}").ret == 4


@pytest.mark.parametrize("hostile", [["-n2"]], indirect=True)
def test_workers_do_not_pass_secrets_on(secrets: HostileWorkspace) -> None:
    secrets.secrets["header"] = HEADER
    with ChatServer(reply(f"the key is {API_KEY} or {TOKEN.upper()} {TOKEN}")) as server:
        secrets.eval(
            rows=[{"score": 0.0}, {"score": 1.0}],
            model={"base_url": server.base_url, "api_key_env": "TEAM_TOKEN", "headers": {"X-Api-Token": HEADER}},
            experiment={"model_path": "m"},
        )
        assert secrets.run(CONFIG, "--junitxml=junit.xml").ret == 1


def test_a_secrets_file_is_never_quoted(secrets: HostileWorkspace) -> None:
    secrets.secrets |= {"FILE_ONLY": "in-the-file-alone-1", "OTHER": "named-by-nobody-22"}
    secrets.write(".env", "FILE_ONLY=in-the-file-alone-1\nOTHER='named-by-nobody-22'\nbroken in-the-file-alone-1\n")
    secrets.eval(secrets={"required": ["FILE_ONLY", "MISSING"]}, gate={"pass_rate": "named-by-nobody-22"})
    assert secrets.run(CONFIG, "--osmosis-secrets-file=.env", "--osmosis-n=in-the-file-alone-1").ret == 4
    given = b"FILE_ONLY=in-the-file-alone-1\nOTHER=named-by-nobody-22\n"
    assert secrets.run(CONFIG, "--osmosis-secrets-file=-", "--osmosis-n=named-by-nobody-22", stdin=given).ret == 4


@pytest.mark.addon
def test_tests_over_rollouts_do_not_quote_secrets(secrets: HostileWorkspace) -> None:
    secrets.eval(rows=[{"solution_str": f"{API_KEY} ##[error] \x1b[31m", "extra": TOKEN}] * 2, secrets={"required": []})
    secrets.write("configs/eval/broken.toml", BROKEN)
    secrets.write(
        "test_it.py",
        "import pytest\n"
        "@pytest.mark.osmosis_eval('configs/eval/x.toml', limit=1)\n"
        "def test_answer(rollout):\n"
        "    assert rollout.solution_str == 'other'\n"
        "@pytest.mark.osmosis_eval('configs/eval/broken.toml')\n"
        "def test_broken(rollout):\n    pass\n",
    )
    result = secrets.run("test_it.py", "--continue-on-collection-errors", "--junitxml=junit.xml")
    assert result.ret in (1, 2)
    secrets.run("test_it.py", "--osmosis-source=model", "--continue-on-collection-errors")


def test_a_baseline_with_a_secret_in_its_settings_does_not_differ(secrets: HostileWorkspace) -> None:
    secrets.eval(
        rows=[{"score": 1.0}] * 6,
        sampling={"stop": [API_KEY]},
        baseline={"results": "base.json"},
        gate={"max_regression": 0.5},
    )
    assert secrets.run(CONFIG, "--osmosis-update-baseline").ret == 0
    result = secrets.run(CONFIG)
    assert result.ret == 0
    assert "differs" not in result.stdout.str()
