"""What the collector answers, as OpenAPI 3.1; served at /openapi.json."""

from __future__ import annotations

from typing import Any

from kasuri.local.wire import MAX_BATCH


def _answer(text: str) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": {"type": "object"}}}}


OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "kasuri collector", "version": "1"},
    "paths": {
        "/health": {"get": {"responses": {"200": _answer("alive"), "503": _answer("nothing can be stored")}}},
        "/rounds": {"get": {"responses": {"200": _answer("ids of the open rounds")}}},
        "/rounds/{id}": {
            "get": {
                "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
                "responses": {"200": _answer("the signed description"), "404": _answer("no such round")},
            }
        },
        "/rounds/{id}/reports": {
            "post": {
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                    {"name": "Kasuri-Token", "in": "header", "required": False, "schema": {"type": "string"}},
                ],
                "requestBody": {
                    "required": True,
                    "content": {
                        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
                        "application/json": {
                            "schema": {
                                "type": "object",
                                "additionalProperties": False,
                                "required": ["version", "round", "key", "reports"],
                                "properties": {
                                    "version": {"type": "integer"},
                                    "round": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                                    "key": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
                                    "reports": {
                                        "type": "array",
                                        "maxItems": MAX_BATCH,
                                        "items": {"type": "string", "contentEncoding": "base64"},
                                    },
                                },
                            }
                        },
                    },
                },
                "responses": {
                    "200": _answer("stored, on disk"),
                    "400": _answer("not a batch of this round"),
                    "401": _answer("token missing or used up"),
                    "404": _answer("no such round"),
                    "409": _answer("a batch with this key is stored already"),
                    "410": _answer("the round is closed"),
                    "413": _answer("too large"),
                    "415": _answer("another media type"),
                    "422": _answer("another batch with this key is stored"),
                    "503": _answer("busy: send the same bytes again after Retry-After seconds"),
                },
            }
        },
    },
}
