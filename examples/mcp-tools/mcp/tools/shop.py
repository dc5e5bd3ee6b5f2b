"""Prices with and without a discount."""

from server import mcp


@mcp.tool
def multiply(quantity: float, price: float) -> float:
    """Return the price of several pieces."""
    return round(quantity * price, 2)


@mcp.tool
def subtract(price: float, discount: float) -> float:
    """Return a price after a discount."""
    if discount > price:
        raise ValueError(f"a discount of {discount} is more than the price of {price}")
    return round(price - discount, 2)
