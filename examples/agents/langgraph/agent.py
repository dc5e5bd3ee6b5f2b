"""A graph of LangGraph: a model and its tools in turns."""

from __future__ import annotations

from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from pytest_osmosis import ChatContext


@tool
def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b


async def rollout(ctx: ChatContext) -> None:
    model = ChatOpenAI(model=ctx.model, base_url=ctx.base_url, api_key=ctx.api_key).bind_tools([multiply])

    async def ask(state: MessagesState) -> dict:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", ToolNode([multiply]))
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", tools_condition)
    graph.add_edge("tools", "ask")
    await graph.compile().ainvoke({"messages": ctx.prompt})
