"""A demo server that refuses tools on chat completions, as OpenAI does for its current models."""

from __future__ import annotations

from aiohttp import web
from aiohttp.typedefs import Handler

from pytest_osmosis.demo import application

MODEL = "gpt-5.4-mini"
NO_CHAT_TOOLS = (
    "Function tools with reasoning_effort are not supported for this model in /v1/chat/completions. "
    "Please use /v1/responses instead."
)


@web.middleware
async def refusing_chat_tools(request: web.Request, handler: Handler) -> web.StreamResponse:
    if request.path == "/v1/chat/completions" and (await request.json()).get("tools"):
        return web.json_response({"error": {"message": NO_CHAT_TOOLS}}, status=400)
    return await handler(request)


if __name__ == "__main__":  # it prints its address as the demo server does
    app = application(names=[MODEL])
    app.middlewares.append(refusing_chat_tools)
    web.run_app(app, host="127.0.0.1", port=0, print=lambda text: print(f"{text.split()[3]}/v1", flush=True))
