"""The embedded arithmetic model over HTTP, in OpenAI's and Anthropic's shapes."""
