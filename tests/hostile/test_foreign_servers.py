"""A server that the config names gets no key that is not its own, whatever the environment holds."""

from __future__ import annotations

import json

from aiohttp import web

from tests.hostile.workspaces import HostileWorkspace
from tests.servers import ChatServer, Exchange, by_api, completion, messages_reply

OWN = "sk-own-5d2c8e7f90b1a346"
OTHERS = {
    "ANTHROPIC_API_KEY": "sk-ant-0c6e1f8d7a92b354",
    "ANTHROPIC_AUTH_TOKEN": "token-83f1b6d2c9a7e045",
    "GROQ_API_KEY": "gsk-47d9e0a1c8b3f652",
    "OPENAI_ADMIN_KEY": "sk-admin-b9e4d7c1f0a28365",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer sk-custom-e1a9c4b7d2f08536",
    "AZURE_API_KEY": "azure-6f0d3b8e7c2a9154",
}


async def echo(exchange: Exchange) -> web.StreamResponse:
    """Answer with all headers of the request."""
    headers = json.dumps(dict(exchange.seen.headers))
    reply = completion({"role": "assistant", "content": headers})
    return await by_api(reply, messages_reply({"type": "text", "text": headers}))(exchange)


def test_no_key_of_another_provider_is_sent_to_a_server_of_the_config(hostile: HostileWorkspace) -> None:
    for variable, value in OTHERS.items():
        hostile.secret(variable, value)
    hostile.secret("OWN_KEY", OWN)
    hostile.write("netrc", "machine 127.0.0.1 login me password of-netrc\n")
    hostile.secret("NETRC", str(hostile.root / "netrc"))
    del hostile.secrets["NETRC"]
    clients = ("light", "openai", "anthropic")
    with ChatServer(echo) as server:
        for client in clients:
            hostile.eval(client, model={"base_url": server.base_url, "client": client})
            own = {"base_url": server.base_url, "client": client, "api_key_env": "OWN_KEY"}
            hostile.eval(f"{client}-own", model=own)
        hostile.eval("litellm", model={"base_url": server.base_url, "client": "litellm"})
        names = [name for client in clients for name in (client, f"{client}-own")]
        result = hostile.run(*(f"--osmosis-config=configs/eval/{name}.toml" for name in names))
        refused = hostile.run("--osmosis-config=configs/eval/litellm.toml")
    assert result.ret == 0
    assert len(server.requests) == len(names) * 4
    sent = [value for seen in server.requests for value in seen.headers.values()]
    others = [value.rpartition(" ")[2] for value in hostile.secrets.values() if value != OWN]
    assert not [value for value in sent for other in others if other in value]
    assert not [value for value in sent if "of-netrc" in value]
    assert sum(OWN in "".join(seen.headers.values()) for seen in server.requests) == len(clients) * 4
    assert refused.ret == 4
    refused.stderr.fnmatch_lines(['*"litellm" takes no base_url*'])
