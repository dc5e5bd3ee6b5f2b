"""Anything in a page that text of others could have become: elements, attributes, addresses, globals."""

from __future__ import annotations

from playwright.sync_api import Page

FOREIGN = """
() => {
  const found = [];
  if (window.acted !== undefined) found.push("the global `acted` is set");
  const tags = "script, iframe, frame, object, embed, img, video, audio, style, link, base, meta, form, math, marquee";
  for (const each of document.body.querySelectorAll(tags))
    if (!(each.localName === "script" && (each.id || each === document.querySelector("body > script:not([id])"))))
      found.push(`<${each.localName}>`);
  for (const each of document.querySelectorAll("*"))
    for (const { name, value } of each.attributes) {
      if (/^on|^srcdoc$|^formaction$/i.test(name)) found.push(`${each.localName} ${name}=${value}`);
      const isAddress = /^(href|src|action|xlink:href|data|poster)$/i.test(name);
      if (isAddress && !/^(#|https?:\\/\\/|app\\.|data:image\\/svg)/.test(value))
        found.push(`${each.localName} ${name}=${value}`);
    }
  return found;
}
"""
OPEN_ALL = """
() => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  for (const each of document.querySelectorAll("[aria-expanded=false]:not([aria-haspopup])")) each.click();
}
"""
ASSIGN = """
() => ["innerHTML", "outerHTML"].map((name) => {
  try { document.querySelector("main")[name] = "<b>x</b>"; return "allowed"; } catch (error) { return error.name; }
})
"""


def foreign(page: Page) -> list[str]:
    """Return what is in the page that only text of others can have put there."""
    found: list[str] = page.evaluate(FOREIGN)
    return found


def open_all(page: Page) -> None:
    """Open every part of the page that is folded."""
    page.evaluate(OPEN_ALL)


def assigned_html(page: Page) -> list[str]:
    """Return what became of attempts to make elements of a text."""
    outcomes: list[str] = page.evaluate(ASSIGN)
    return outcomes
