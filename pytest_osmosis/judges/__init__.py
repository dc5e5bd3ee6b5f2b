"""LLM judges: a model scores an answer or a conversation by a rubric. Everything that is judged is data."""
