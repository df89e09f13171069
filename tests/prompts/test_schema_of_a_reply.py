"""The schema that a model is shown."""

from typing import Any, ClassVar

from mnemo.prompts.question import Reply, schema_of


class Part(Reply):
    """Words for readers of this code."""

    description: str


class Whole(Reply):
    """More of them."""

    title: str
    parts: tuple[Part, ...]


def test_a_schema_says_nothing_of_how_the_code_describes_itself():
    """Docstrings and titles stay out, small models repeat them; fields named so stay in."""
    part = {"properties": {"description": {"type": "string"}}, "required": ["description"]}
    assert schema_of(Whole) == {
        "$defs": {"Part": {**part, "type": "object"}},
        "properties": {
            "title": {"type": "string"},
            "parts": {"items": {"$ref": "#/$defs/Part"}, "type": "array"},
        },
        "required": ["title", "parts"],
        "type": "object",
    }


def test_a_list_may_be_bounded():
    """A model that is held to the schema cannot go on forever; a longer list is still read."""
    schema = schema_of(Whole, parts=3)
    assert schema["properties"]["parts"]["maxItems"] == 3
    parts = [{"description": str(number)} for number in range(4)]
    assert len(Whole.model_validate({"title": "t", "parts": parts}).parts) == 4


def test_a_schema_is_generated_once_and_copied():
    """A question costs no generation, and what is done to its schema reaches no other."""

    class Once(Reply):
        """Generated where it is counted."""

        parts: tuple[Part, ...]
        made: ClassVar[int] = 0

        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            Once.made += 1
            return super().model_json_schema(*args, **options)

    schema_of(Once, parts=3)["$defs"].clear()
    assert schema_of(Once)["$defs"].keys() == {"Part"}
    assert "maxItems" not in schema_of(Once)["properties"]["parts"]
    assert Once.made == 1
