"""The contract of records: everything said or observed, found by its words."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from contracts.talk import call, result, said, snapshot
from world import NOON, Kit, StoreContract

from mnemo.errors import Conflict, NotFound
from mnemo.stores import EngineStore
from mnemo.values.derived import Thread
from mnemo.values.messages import StoredMessage
from mnemo.values.records import (
    Group,
    Hidden,
    Query,
    Ranking,
    RecordHit,
    RecordQuery,
    Surfacing,
    SurfacingQuery,
    ViewQuery,
)

KYOTO = "京都のお寺に行きたいです"
TOKYO = "東京都に住んでいます"


def asked(*groups: Sequence[str] | Group) -> Query:
    """A query of groups, each given by what it wants."""
    return Query(tuple(g if isinstance(g, Group) else Group(tuple(g)) for g in groups))


async def found(store: EngineStore, *groups: Sequence[str] | Group, limit: int = 100) -> list[str]:
    """The ids of the records in repository r that match."""
    wanted = RecordQuery(query=asked(*groups), ranking=Ranking(NOON), limit=limit)
    hits = await store.records("r").search(wanted)
    return sorted(hit.record.message_id for hit in hits)


class RecordStoreContract(StoreContract):
    """``StoredRecords``: searching, looking around, and what comes up by itself."""

    async def _search(self, kit: Kit, *groups: Any, repo: str = "r", **with_: Any) -> list[str]:
        """The ids that are found, best first."""
        return [h.record.message_id for h in await self._hits(kit, *groups, repo=repo, **with_)]

    async def _hits(
        self, kit: Kit, *groups: Any, repo: str = "r", decay: float = 0.3, **with_: Any
    ) -> list[RecordHit]:
        ranking = Ranking(kit.clock.now(), decay)
        wanted = RecordQuery(query=asked(*groups), ranking=ranking, **with_)
        return await kit.store.records(repo).search(wanted)

    async def _say(self, kit: Kit, *messages: StoredMessage, repo: str = "r") -> None:
        await kit.store.transcript(repo).writing(lambda tx: tx.add(messages))

    async def _keep(self, kit: Kit, *values: Any, repo: str = "r") -> None:
        def work(tx: Any) -> None:
            for value in values:
                (tx.keep if isinstance(value, Thread) else tx.put)(value)

        await kit.store.transcript(repo).writing(work)

    # ── Words ────────────────────────────────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("groups", "found"),
        [
            ([["kyoto"]], {0, 2}),
            ([["KYOTO"]], {0, 2}),
            ([["kyoto", "temples"]], {0}),
            ([["temples"], ["tokyo"]], {0, 1}),
            ([Group(("kyoto",), ("temples",))], {2}),
            ([Group(("kyoto",), ("temples", "may"))], set()),
            ([["visit kyoto"]], {0}),
            ([["kyoto visit"]], set()),
            ([["tests"]], {3}),
            ([["cafe"]], {3}),
            ([["привет"]], {4}),
            ([["sub-agents"]], {4}),
            ([["nowhere"]], set()),
            ([['say "kyoto"']], set()),
        ],
    )
    async def test_words_find_steps(self, kit, groups, found):
        """Words are folded and stemmed, phrases keep their order, groups are alternatives."""
        await kit.start()
        texts = [
            "We will visit Kyoto and its temples",
            "Tokyo is next",
            "Kyoto again in May",
            "Testing went well in the Café",
            "ПРИВЕТ, said the sub-agents",
        ]
        steps = await kit.append_all([(text, "") for text in texts])
        ids = {f"{step.node_id}/observation": n for n, step in enumerate(steps)}  # type: ignore[union-attr]
        assert {ids[id] for id in await self._search(kit, *groups)} == found

    async def test_each_half_of_a_step_is_a_record(self, kit):
        """A word on both sides is found twice, the later one first; words of both not together."""
        await kit.start()
        step = await kit.append("train to Kyoto", "booked the train")
        hits = await self._hits(kit, ["train"])
        records = {hit.record.kind: hit.record for hit in hits}
        assert [*records] == ["action", "observation"]
        assert records["action"].message_id == f"{step.node_id}/action"
        assert records["action"].seq == records["observation"].seq + 1 == 2 * step.ordinal + 1
        assert all(hit.relevance > 0 for hit in hits)
        assert await self._search(kit, ["kyoto", "booked"]) == []

    async def test_messages_are_records(self, kit):
        """Speech is, tool traffic is not, whatever wrote it in one transaction."""
        spoken = (
            said(0, "tea for one"),
            said(1, "tea for two", role="assistant"),
            said(2, "tea for all", role="system"),
            said(3, "I think of tea", role="assistant", kind="thought"),
            call(4, "c"),
            result(5, "c", content="tea from a tool"),
            call(6, "d"),
            result(7, "d", content="tea from an agent", kind="reply"),
        )
        await self._say(kit, *spoken)
        hits = await self._hits(kit, ["tea"])
        assert {(hit.record.message_id, hit.record.kind) for hit in hits} == {
            ("m0", "user"),
            ("m1", "assistant"),
            ("m2", "system"),
            ("m3", "thought"),
            ("m7", "reply"),
        }
        assert {hit.record.session_id for hit in hits} == {"t"}
        assert {hit.record.at for hit in hits} == {
            m.at for m in spoken if m.stored_id in _ids(hits)
        }

    async def test_tool_traffic_is_a_record_if_it_is_asked_for(self, kit):
        """A call by its name and arguments, a result by its content."""
        messages = [call(0, "zebra"), result(1, "zebra", content="a herd")]
        transcript = kit.store.transcript("r")
        await transcript.writing(lambda tx: tx.add(messages, search_tools=True))
        (found,) = await self._hits(kit, ["zebra"])
        assert (found.record.kind, "zebra" in found.record.text) == ("tool_call", True)
        assert await self._search(kit, ["herd"]) == ["m1"]

    async def test_snapshots_are_records_as_long_as_they_are_kept(self, kit):
        """A changed text is found by its new words, a dropped one not at all."""
        await self._say(kit, said(0, "x"))
        one = snapshot(0, 0, text="the kettle boiled")
        await self._keep(kit, one)
        assert await self._search(kit, ["kettle"]) == ["s0-0"]
        other = snapshot(0, 0, text="the pot boiled")
        await self._keep(kit, other)
        assert await self._search(kit, ["kettle"]) == []
        (hit,) = await self._hits(kit, ["pot"])
        assert (hit.record.kind, hit.record.seq, hit.record.session_id) == ("snapshot", 0, "t")
        await kit.store.transcript("r").writing(lambda tx: tx.drop(other))
        assert await self._search(kit, ["pot"]) == []

    async def test_what_is_erased_is_not_found(self, kit):
        """Neither the message nor the snapshot whose range held it."""
        await self._say(kit, said(0, "tea"), said(1, "more tea"))
        await self._keep(kit, snapshot(0, 0, text="old tea"), snapshot(1, 1, text="new tea"))
        await kit.store.transcript("r").writing(lambda tx: tx.erase("t", [0]))
        assert sorted(await self._search(kit, ["tea"])) == ["m1", "s1-1"]

    async def test_a_failed_work_leaves_nothing_to_find(self, kit):
        """What was undone is not in the index either."""

        def work(tx: Any) -> None:
            tx.add([said(0, "tea")])
            raise RuntimeError

        with pytest.raises(RuntimeError):
            await kit.store.transcript("r").writing(work)
        assert await self._search(kit, ["tea"]) == []

    async def test_search_keeps_to_its_repository(self, kit):
        """The same word in another repository of the store is not found."""
        await kit.start("s", repo="other")
        await kit.append("kyoto", session="s", repo="other")
        await self._say(kit, said(0, "kyoto"), repo="other")
        assert await self._search(kit, ["kyoto"]) == []
        assert len(await self._search(kit, ["kyoto"], repo="other")) == 2

    async def test_discarded_text_is_still_searched(self, kit):
        """A discard takes steps from recall, not from what was said."""
        await kit.start()
        step = await kit.append("kyoto")
        await kit.close()
        await kit.discard()
        assert await self._search(kit, ["kyoto"]) == [f"{step.node_id}/observation"]

    # ── Order, and what is left out ──────────────────────────────────────────────────

    async def test_the_best_come_first_and_the_limit_last(self, kit):
        """More matches score higher; filters apply before the limit."""
        await self._say(
            kit,
            said(0, "kyoto kyoto kyoto", thread="s", at=NOON),
            said(1, "kyoto and a long list of other words that dilute it", thread="s", at=NOON),
            said(0, "kyoto", thread="t", at=NOON),
            *(said(n, f"filler number {n}", thread="u") for n in range(10)),
        )
        (best,) = await self._hits(kit, ["kyoto"], session_id="s", limit=1)
        assert best.record.text == "kyoto kyoto kyoto"
        only = await self._hits(kit, ["kyoto"], session_id="t")
        assert [hit.record.session_id for hit in only] == ["t"]
        assert await self._search(kit, ["kyoto"], session_id="nobody") == []

    async def test_age_and_then_place_break_ties(self, kit):
        """Score, then the newer, then the stream's name, then what was said later."""
        at = kit.clock.now() - timedelta(days=1)
        old = at - timedelta(days=4000)
        await self._say(kit, *(said(n, "tea", thread="b", at=at) for n in range(3)))
        await self._say(kit, said(0, "tea", thread="a", at=at), said(1, "tea", thread="a", at=old))
        hits = await self._hits(kit, ["tea"])
        places = [(hit.record.session_id, hit.record.seq) for hit in hits]
        assert places == [("a", 0), ("b", 2), ("b", 1), ("b", 0), ("a", 1)]

    async def test_a_new_record_is_not_lost_behind_many_old_ones(self, kit):
        """The order is exact however many match: one new among 3,000 old ones comes first."""
        now = kit.clock.now()
        old = now - timedelta(days=3650)
        messages = [said(n, "tea", at=old) for n in range(3_000)]
        await self._say(kit, *messages, said(3_000, "tea and a few more words", at=now))
        assert await self._search(kit, ["tea"], limit=1, decay=1.0) == ["m3000"]

    async def test_what_somebody_sees_is_hidden(self, kit):
        """Of that stream alone: messages from a seq on, the last steps, named snapshots."""
        await kit.start("t")
        steps = [await kit.append(f"tea {n}", "", session="t") for n in range(3)]
        await self._say(kit, *(said(n, "tea") for n in range(4)))
        await self._say(kit, *(said(n, "tea", thread="u") for n in range(4)))
        await self._keep(kit, snapshot(0, 0, text="tea"), snapshot(1, 1, text="tea"))
        await self._keep(kit, snapshot(0, 0, id="s1-1", text="tea", thread="u"))
        hidden = Hidden(stream="t", message_seq=2, last_steps=2, ids=frozenset(["s1-1"]))
        hits = await self._hits(kit, ["tea"], hidden=hidden)
        assert sorted((h.record.session_id, h.record.message_id) for h in hits) == sorted(
            [
                ("t", f"{steps[0].node_id}/observation"),
                *(("t", id) for id in ("m0", "m1", "s0-0")),
                *(("u", id) for id in ("m0", "m1", "m2", "m3", "s1-1")),
            ]
        )
        five = await self._search(kit, ["tea"], hidden=hidden, session_id="t", limit=4)
        assert len(five) == 4

    async def test_expired_messages_are_not_found(self, kit):
        """By the thread's own time to live before the configured one; 0 is for ever."""
        now = kit.clock.now()
        recorded_at = now - timedelta(seconds=100)
        for thread, ttl_s in (("own", 99.0), ("exact", 100.0), ("ever", 0.0), ("default", None)):
            await self._keep(kit, Thread(id=thread, ttl_s=ttl_s))
            await self._say(kit, said(0, "tea", thread=thread, id=thread, recorded_at=recorded_at))
            await self._keep(kit, snapshot(0, 0, thread=thread, id=f"s-{thread}", text="tea"))
        assert sorted(await self._search(kit, ["tea"])) == [
            *("default", "ever", "exact"),
            *("s-default", "s-ever", "s-exact"),
        ]
        brief = await self._search(kit, ["tea"], default_ttl_s=50.0)
        assert sorted(brief) == ["ever", "exact", "s-ever", "s-exact"]

    # ── Scripts without blanks ───────────────────────────────────────────────────────

    @pytest.mark.parametrize(
        ("groups", "found"),
        [
            ([["東京都"]], {0}),
            ([["東京"]], {0, 3}),
            ([["京"]], {0, 1, 3}),
            ([["京都の"], ["東京"]], {0, 1, 3}),
            ([Group(("京",), ("東",))], {1}),
            ([Group(("お寺に",), ("東京",))], {1}),
            ([["東京", "hotel"]], {3}),
            ([["東京", "OT"]], {3}),
            ([["東京", "é"]], {3}),
            ([["สวัสดี"]], {4}),
            ([["사랑"]], {5}),
            ([["東京 Hotel"]], {3}),
            ([["都東京"]], set()),
            ([["tea"], ["東京"]], {0, 3}),
        ],
    )
    async def test_a_part_of_an_unspaced_run_is_found(self, kit, groups, found):
        """Three characters by the index, fewer by the stored text; case aside."""
        texts = [TOKYO, KYOTO, "tea in the hotel", "東京 Hotel É", "ผมพูดว่าสวัสดีครับ", "그를사랑한다"]
        await self._say(kit, *(said(n, text) for n, text in enumerate(texts)))
        assert {int(id[1:]) for id in await self._search(kit, *groups)} == found

    async def test_short_operands_look_at_the_newest_records_only(self, kit):
        """A search without an index has a bound; each hit is worth 1."""
        await self._say(kit, *(said(n, "東京") for n in range(6)))
        hits = await self._hits(kit, ["京"], scan_limit=2)
        assert {hit.record.message_id for hit in hits} == {"m4", "m5"}
        assert {hit.relevance for hit in hits} == {1.0}

    # ── Looking around ───────────────────────────────────────────────────────────────

    async def _around(self, kit: Kit, id: str, **with_: Any) -> Any:
        return await kit.store.records("r").around(ViewQuery(message_id=id, **with_))

    async def test_a_message_has_its_neighbours(self, kit):
        """The nearest of its thread, ascending, of all kinds and epochs; fewer at the ends."""
        messages = [said(n, epoch=int(n > 3)) for n in range(8)]
        await self._say(kit, *messages[:6], call(8, "c"), result(9, "c", is_error=True))
        await self._say(kit, *messages[6:], *(said(n, thread="u", id=f"u{n}") for n in range(9)))
        around = await self._around(kit, "m5", before=3, after=4)
        assert _ids_of(around.before) == ["m2", "m3", "m4"]
        assert _ids_of(around.after) == ["m6", "m7", "m8", "m9"]
        assert (around.target.seq, around.last_seq) == (5, 5)
        assert [r.kind for r in around.after[2:]] == ["tool_call", "tool_result"]
        assert around.after[2].tool_calls[0].name == "look"
        assert around.after[3].is_error
        first = await self._around(kit, "m0", before=5, after=0)
        assert (first.before, first.after) == ((), ())

    async def test_a_step_has_its_halves_around_it(self, kit):
        """Over the episodes of its session; an empty half is no record."""
        await kit.start()
        await kit.append("one", "first")
        await kit.append("", "second")
        await kit.close()
        await kit.discard()
        await kit.begin("s-2")
        (step,) = await kit.append_all([("three", "third")], episode="s-2")
        await kit.append_all([("four", " ")], episode="s-2")
        id = f"{step.node_id}/observation"  # type: ignore[union-attr]
        around = await self._around(kit, id, before=2, after=10)
        assert [r.text for r in around.before] == ["first", "second"]
        assert [r.text for r in around.after] == ["third", "four"]
        assert around.target.text == "three"

    async def test_a_snapshot_stands_before_its_messages(self, kit):
        """Ahead of it what came before its range, behind it what the range begins with."""
        await self._say(kit, *(said(n) for n in range(8)))
        await self._keep(kit, snapshot(0, 1), snapshot(2, 5), snapshot(6, 6))
        around = await self._around(kit, "s2-5", before=1, after=3)
        assert _ids_of(around.before) == ["m1"]
        assert _ids_of(around.after) == ["m2", "m3", "m4"]
        assert (around.target.kind, around.target.seq, around.last_seq) == ("snapshot", 2, 5)
        assert [s.id for s in around.snapshots_after] == ["s6-6"]

    async def test_the_nearest_snapshots_on_each_side_are_given(self, kit):
        """Three at most, wholly outside, of this epoch; a wider one for what it contains."""
        await self._say(kit, *(said(n) for n in range(60)))
        narrow = [snapshot(n, n + 4) for n in range(0, 60, 5)]
        await self._keep(kit, *narrow, snapshot(5, 14, level=2), snapshot(0, 4, id="x", epoch=1))
        around = await self._around(kit, "m30", before=2, after=2)
        assert [s.id for s in around.snapshots_before] == ["s5-14", "s15-19", "s20-24"]
        assert [s.id for s in around.snapshots_after] == ["s35-39", "s40-44", "s45-49"]
        near = await self._around(kit, "m12", before=0, after=0)
        assert [s.id for s in near.snapshots_before] == ["s0-4", "s5-9"]

    async def test_what_is_not_there_cannot_be_viewed(self, kit):
        """Unknown, erased, expired, of another repository, of another stream."""
        await self._say(kit, said(0), said(1), said(2))
        await self._keep(kit, Thread(id="t"), snapshot(1, 1))
        await self._say(kit, said(5), repo="other")
        await kit.store.transcript("r").writing(lambda tx: tx.erase("t", [0]))
        for id in ("m0", "m5", "nobody", "nobody/action", "/", ""):
            with pytest.raises(NotFound):
                await self._around(kit, id)
        with pytest.raises(NotFound):
            await self._around(kit, "m1", session_id="u")
        await kit.clock.advance(100 * 86_400)
        for id in ("m1", "s1-1"):
            assert (await self._around(kit, id)).target.message_id == id
            with pytest.raises(NotFound):
                await self._around(kit, id, default_ttl_s=60.0)

    async def test_an_id_of_several_threads_needs_its_thread(self, kit):
        """The error names them; with the stream's id it is found."""
        await self._say(kit, said(0, "one"), said(0, "two", thread="u"))
        with pytest.raises(Conflict, match="'t', 'u'"):
            await self._around(kit, "m0")
        assert (await self._around(kit, "m0", session_id="u")).target.text == "two"

    # ── What comes up by itself ──────────────────────────────────────────────────────

    async def _surfacing(self, kit: Kit, *terms: str, **with_: Any) -> Surfacing:
        wanted = SurfacingQuery(terms=terms, ranking=Ranking(kit.clock.now()), **with_)
        return await kit.store.records("r").surfacing(wanted)

    async def test_records_that_share_terms_come_up(self, kit):
        """Best first, each with the terms it matches; how many hold each is counted."""
        await self._say(kit, *(said(n, f"filler {n}") for n in range(30)))
        await self._say(
            kit,
            said(30, "the violin lessons cost money"),
            said(31, "violin lessons"),
            said(32, "a violin"),
            said(33, "lessons in filler"),
            said(34, "東京都の天気"),
        )
        found = await self._surfacing(
            kit, "violin", "lesson", "money", "東京都", "天気が", "京都の"
        )
        assert found.records == 35
        assert dict(found.counts) == {
            "violin": 3,
            "lesson": 3,
            "money": 1,
            "東京都": 1,
            "天気が": 0,
            "京都の": 0 if "京都の" not in "東京都の天気" else 1,
        }
        terms = {hit.record.message_id: set(own) for hit, own in found.hits}
        assert terms == {
            "m30": {"violin", "lesson", "money"},
            "m31": {"violin", "lesson"},
            "m34": {"東京都", "京都の"},
        }
        assert found.hits[0][0].record.message_id == "m30"
        assert [h.relevance for h, _ in found.hits] == sorted(
            (h.relevance for h, _ in found.hits), reverse=True
        )

    async def test_one_term_must_tell_something(self, kit):
        """Two terms that every other record holds bring nothing up; with a rare one both count."""
        await self._say(kit, *(said(n, "tea with milk") for n in range(20)))
        await self._say(kit, *(said(n, "x") for n in range(20, 40)))
        await self._say(kit, said(40, "tea, milk and a zebra"), said(41, "tea and a zebra"))
        assert (await self._surfacing(kit, "tea", "milk")).hits == ()
        found = await self._surfacing(kit, "tea", "milk", "zebra")
        assert [(h.record.message_id, set(own)) for h, own in found.hits] == [
            ("m40", {"tea", "milk", "zebra"}),
            ("m41", {"tea", "zebra"}),
        ]

    async def test_with_few_records_every_term_tells(self, kit):
        """Of three records all three may be worth showing."""
        await self._say(kit, *(said(n, "tea with milk") for n in range(3)))
        assert len((await self._surfacing(kit, "tea", "milk")).hits) == 3
        assert (await self._surfacing(kit, "tea", "milk", min_terms=3)).hits == ()

    async def test_what_is_seen_excluded_or_cleared_does_not_come_up(self, kit):
        """Hidden ones, named ones, expired ones, and earlier epochs of any thread."""
        await self._keep(kit, Thread(id="t", epoch=1), Thread(id="u", epoch=1))
        await self._say(kit, *(said(n, "tea milk", epoch=n) for n in range(2)))
        await self._say(kit, *(said(n, "tea milk", epoch=n, thread="u") for n in range(2)))
        await self._keep(kit, snapshot(0, 0, text="tea milk", thread="u", epoch=0))
        await self._say(kit, said(0, "tea milk", thread="v", recorded_at=NOON - timedelta(days=1)))
        await self._keep(kit, Thread(id="v", ttl_s=1.0))
        await kit.start()
        step = await kit.append("tea milk", "tea milk")
        found = await self._surfacing(
            kit,
            "tea",
            "milk",
            hidden=Hidden(stream="t", message_seq=1),
            excluded=frozenset([("s", f"{step.node_id}/action")]),
        )
        ids = {(h.record.session_id, h.record.message_id) for h, _ in found.hits}
        assert ids == {("u", "m1"), ("s", f"{step.node_id}/observation")}

    async def test_a_message_of_two_sessions_comes_up_once(self, kit):
        """Both of its steps show it."""
        await self._say(kit, said(0, "tea milk"))
        for session in ("s", "u"):
            await kit.start(session)
            await kit.append("tea milk", session=session, thread_id="t", message_id="m0")
        found = await self._surfacing(kit, "tea", "milk")
        assert [hit.record.message_id for hit, _ in found.hits] == ["m0"]

    async def test_an_empty_repository_has_nothing_to_say(self, kit):
        """No record is found in it, none comes up."""
        assert await self._search(kit, ["tea"]) == await self._search(kit, ["東京"]) == []
        found = await self._surfacing(kit, "tea")
        assert (found.records, dict(found.counts), found.hits) == (0, {"tea": 0}, ())


def _ids(hits: Sequence[RecordHit]) -> set[str]:
    return {hit.record.message_id for hit in hits}


def _ids_of(records: Sequence[Any]) -> list[str]:
    return [record.message_id for record in records]
