"""Tombstones: salted digests of erased ids, so that no late changeset brings them back."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
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
    return bool(_erased(tx, {id: _in_repository(repo_id, id)}))


def refuse_erased(tx: Tx, repo_id: str, ids: Iterable[str | None]) -> None:
    """*Raises* ``Conflict`` if one of *ids* was erased from the repository."""
    if _erased(tx, {id: _in_repository(repo_id, id) for id in ids if id}):
        raise Conflict("nothing was written: it comes from steps that were forgotten")


def bar_claims(tx: Tx, repo_id: str, claims: Iterable[Claim]) -> None:
    """Bar the extraction of what *claims* say, and of what they said before."""
    texts = ((one.type, text) for one in claims for text in (one.text, *one.former_texts))
    _remember(tx, [_barred(repo_id, type, text) for type, text in texts])


def refuse_barred(
    tx: Tx, repo_id: str, extracted: Sequence[Claim], by_hand: Iterable[Claim]
) -> None:
    """*Raises* ``Barred`` for what was erased as a memory; *by_hand* it may come again."""
    again = {claim.id: _barred(repo_id, claim.type, claim.text) for claim in by_hand}
    tx.run_many(_FORGET, [(digest,) for digest in _digests(tx, again).values()])
    said = {claim.id: _barred(repo_id, claim.type, claim.text) for claim in extracted}
    if barred := _erased(tx, said):
        raise Barred(barred)


def _barred(repo_id: str, type: str, text: str) -> str:
    return f"{repo_id}\0{type}\0{former_key(text)}"


def remember_messages(tx: Tx, rows: Iterable[tuple[int, str]]) -> None:
    """Remember messages, each by its thread's number and its id."""
    _remember(tx, [_in_thread(thread, id) for thread, id in rows])


def erased_messages(tx: Tx, thread: int, ids: Iterable[str]) -> frozenset[str]:
    """Those of *ids* that were erased from the thread of this number."""
    return frozenset(_erased(tx, {id: _in_thread(thread, id) for id in ids}))


def _remember(tx: Tx, named: Iterable[str | bytes]) -> None:
    salt = _stored_salt(tx)
    if salt is None:
        salt = secrets.token_bytes(16)
        tx.run(_ADD_SALT, (salt.hex(),))
    tx.run_many(_REMEMBER, [(_digest(salt, one),) for one in named])


def _erased(tx: Tx, named: Mapping[str, str | bytes]) -> tuple[str, ...]:
    """The keys of what was erased of *named*."""
    digests = _digests(tx, named)
    found = {
        digest
        for chunk in chunks([*digests.values()])
        for (digest,) in tx.run(_FIND.format(holes(chunk)), chunk)
    }
    return tuple(key for key, digest in digests.items() if digest in found)


def _digests(tx: Tx, named: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """Those of *named*, by the same keys; none where nothing was erased."""
    if not named or tx.run(_ANY).fetchone() is None:
        return {}
    salt = _stored_salt(tx)
    return {} if salt is None else {key: _digest(salt, one) for key, one in named.items()}


def _in_repository(repo_id: str, id: str | bytes) -> str | bytes:
    """As one name, unlike those of threads and claims, which do not begin with U+0000."""
    prefix = f"\0{repo_id}\0"
    return prefix + id if isinstance(id, str) else prefix.encode() + id


def _in_thread(thread: int, id: str) -> str:
    # No other id can be like it: what is stored holds no U+0000.
    return f"{thread}\0{id}"


def _stored_salt(tx: Tx) -> bytes | None:
    """``None``: there is none yet, or it is damaged, and the digests made with it mean nothing."""
    return next(iter(_SALTS.intact(tx.run(_SALT))), None)


def _digest(salt: bytes, id: str | bytes) -> bytes:
    raw = id if isinstance(id, bytes) else id.encode("utf-8", "surrogatepass")
    return blake2b(raw, key=salt, digest_size=16).digest()
