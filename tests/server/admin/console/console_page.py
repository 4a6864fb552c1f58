"""What tests do with the console's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["PANELS", "rows", "tab"]

PANELS = ("timeline", "memory", "decisions", "policies", "playground", "figures")
"""As they are named in the page's address."""


def tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name).click()


def rows(page: Page) -> list[list[str]]:
    """The timeline as its table has it."""
    tab(page, "Timeline")
    table = page.get_by_role("button", name="As a table")
    if table.get_attribute("aria-pressed") == "false":
        table.click()
    page.locator("#panel-timeline tbody tr").first.wait_for()
    return page.locator("#panel-timeline tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
