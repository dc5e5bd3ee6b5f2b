"""The errors of `evaluate_rubric`, by the names that they have in the Osmosis SDK."""

from __future__ import annotations


class MissingAPIKeyError(RuntimeError):
    """The key of the judge's provider is neither passed nor set in the environment."""


class ProviderRequestError(RuntimeError):
    """The judge gave no score: its provider did not answer, or the answer holds none. `detail` says why."""

    def __init__(self, provider: str, model: str, detail: str) -> None:
        self.provider = provider
        self.model = model
        self.detail = detail.strip() or "It gave no reason."
        super().__init__(f"Provider '{provider}' request for model '{model}' failed. {self.detail}")


class ModelNotFoundError(ProviderRequestError):
    """The provider knows no model of that name."""
