"""The page of the OpenAPI document: under the policy, silent, accessible, and its calls work."""

import pytest
from inspector_kit import inspected

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.asyncio(loop_scope="module")]


async def test_the_page_of_all_calls_can_carry_one_out(browser, server):
    """With the token of the tab; nothing is asked of others, and the console stays empty."""
    async with inspected(browser, server) as inspector:
        page, said = inspector.page, []
        await inspector.settled()
        page.on("console", lambda message: said.append(message.text))
        answer = await page.goto(f"{inspector.url}/docs")
        assert "style-src 'self';" in answer.headers["content-security-policy"]
        call = page.locator("#operations-repository-remember")
        await call.get_by_role("button", name="POST /v1/remember Remember").click()
        assert "curl" in await call.inner_text()
        await call.get_by_role("button", name="Try it out").click()
        await call.get_by_role("button", name="Execute").click()
        told = call.locator(".live-responses-table .response")
        assert "Ada moved to Bern" in await told.inner_text()
        assert await inspector.violations() == []
        for width in (1280, 360):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await page.evaluate("document.documentElement.scrollWidth") == width
        assert said == []
    (thread,) = await server.memory.repo("default").threads()
    assert thread.messages == 1
