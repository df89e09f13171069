"""Tombstones: salted digests of erased ids, so that no late changeset brings them back."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from hashlib import blake2b

from mnemo.errors import Barred, Conflict
from mnemo.store.rows import Rows, chunks, holes
from mnemo.store.tx import Tx
from mnemo.values.graph import Claim
from mnemo.values.lookup import former_key

_SALT = "SELECT name, value FROM meta WHERE name = 'salt'"
_SALTS: Rows[bytes] = Rows("meta", "s s", lambda row: bytes.fromhex(row[1]))
_ADD_SALT = """
INSERT INTO meta (name, value) VALUES ('salt', ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
"""
_ANY = "SELECT 1 FROM erased LIMIT 1"
_FIND = "SELECT digest FROM erased WHERE digest IN ({})"
_FORGET = "DELETE FROM erased WHERE digest = ?"
_REMEMBER = "INSERT INTO erased (digest) VALUES (?) ON CONFLICT DO NOTHING"


def remember_erased(tx: Tx, repo_id: str, ids: Iterable[str | bytes]) -> None:
    """Remember the *ids* of sessions, episodes and steps of the repository."""
    _remember(tx, [_in_repository(repo_id, id) for id in ids])


def was_erased(tx: Tx, repo_id: str, id: str) -> bool:
    """Whether the session, episode or step *id* of the repository was erased."""
    if tx.run(_ANY).fetchone() is None:
        return False
    return bool(_found(tx, [_digest(_salt(tx), _in_repository(repo_id, id))]))


def refuse_erased(tx: Tx, repo_id: str, ids: Iterable[str | None]) -> None:
    """*Raises* ``Conflict`` if one of *ids* was erased from the repository."""
    if tx.run(_ANY).fetchone() is None:
        return
    salt = _salt(tx)
    if _found(tx, [_digest(salt, _in_repository(repo_id, id)) for id in set(ids) if id]):
        raise Conflict("nothing was written: it comes from steps that were forgotten")


def bar_claims(tx: Tx, repo_id: str, claims: Iterable[Claim]) -> None:
    """Bar the extraction of what *claims* say, and of what they said before."""
    texts = ((one.type, text) for one in claims for text in (one.text, *one.former_texts))
    _remember(tx, [_barred(repo_id, type, text) for type, text in texts])


def refuse_barred(
    tx: Tx, repo_id: str, extracted: Sequence[Claim], by_hand: Iterable[Claim]
) -> None:
    """*Raises* ``Barred`` for what was erased as a memory; *by_hand* it may come again."""
    if tx.run(_ANY).fetchone() is None:
        return
    salt = _salt(tx)

    def digest(claim: Claim) -> bytes:
        return _digest(salt, _barred(repo_id, claim.type, claim.text))

    tx.run_many(_FORGET, [(digest(claim),) for claim in by_hand])
    digests = {one.id: digest(one) for one in extracted}
    found = _found(tx, list(digests.values()))
    barred = tuple(id for id, one in digests.items() if one in found)
    if barred:
        raise Barred(barred)


def _barred(repo_id: str, type: str, text: str) -> str:
    return f"{repo_id}\0{type}\0{former_key(text)}"


def remember_messages(tx: Tx, rows: Iterable[tuple[int, str]]) -> None:
    """Remember messages, each by its thread's number and its id."""
    _remember(tx, [_in_thread(thread, id) for thread, id in rows])


def erased_messages(tx: Tx, thread: int, ids: Iterable[str]) -> frozenset[str]:
    """Those of *ids* that were erased from the thread of this number."""
    salt = _stored_salt(tx)
    if salt is None or tx.run(_ANY).fetchone() is None:
        return frozenset()
    digests = {id: _digest(salt, _in_thread(thread, id)) for id in ids}
    found = _found(tx, list(digests.values()))
    return frozenset(id for id, digest in digests.items() if digest in found)


def _remember(tx: Tx, named: Iterable[str | bytes]) -> None:
    salt = _salt(tx)
    tx.run_many(_REMEMBER, [(_digest(salt, one),) for one in named])


def _found(tx: Tx, digests: Sequence[bytes]) -> set[bytes]:
    return {
        digest
        for chunk in chunks(digests)
        for (digest,) in tx.run(_FIND.format(holes(chunk)), chunk)
    }


def _in_repository(repo_id: str, id: str | bytes) -> str | bytes:
    """As one name, unlike those of threads and claims, which do not begin with U+0000."""
    prefix = f"\0{repo_id}\0"
    return prefix + id if isinstance(id, str) else prefix.encode() + id


def _in_thread(thread: int, id: str) -> str:
    # No other id can be like it: what is stored holds no U+0000.
    return f"{thread}\0{id}"


def _salt(tx: Tx) -> bytes:
    salt = _stored_salt(tx)
    if salt is None:
        salt = secrets.token_bytes(16)
        tx.run(_ADD_SALT, (salt.hex(),))
    return salt


def _stored_salt(tx: Tx) -> bytes | None:
    """``None``: there is none yet, or it is damaged, and the digests made with it mean nothing."""
    return next(iter(_SALTS.intact(tx.run(_SALT))), None)


def _digest(salt: bytes, id: str | bytes) -> bytes:
    raw = id if isinstance(id, bytes) else id.encode("utf-8", "surrogatepass")
    return blake2b(raw, key=salt, digest_size=16).digest()
