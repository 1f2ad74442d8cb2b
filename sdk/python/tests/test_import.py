"""An account that imports the log."""

from pathlib import Path
from typing import Any

from process import Serve, free_port
from test_request import refused
from vectors import listed

import lapse

API = [
    *("STREAM.INFO.LAPSE_main", "STREAM.MSG.GET.LAPSE_main", "CONSUMER.CREATE.LAPSE_main.>"),
    *("CONSUMER.INFO.LAPSE_main.*", "CONSUMER.DELETE.LAPSE_main.*", "CONSUMER.UNPIN.LAPSE_main.*"),
]
PULL = "CONSUMER.MSG.NEXT.LAPSE_main.billing"
IMPORTS = "\n".join(f'{{ service: {{ account: CLIENTS, subject: "$JS.API.{s}" }}, to: "LAPSE.API.{s}" }}' for s in API)
CONFIG = f"""accounts {{ APP {{
  users: [{{ user: app, password: secret }}]
  imports: [
    {IMPORTS}
    {{ service: {{ account: CLIENTS, subject: "lapse.main.api.>" }} }}
    {{ service: {{ account: CLIENTS, subject: "$JS.ACK.LAPSE_main.billing.>" }} }}
    {{ service: {{ account: CLIENTS, subject: "$JS.FC.LAPSE_main.>" }} }}
    {{ service: {{ account: LAPSE, subject: "$JS.API.{PULL}" }}, to: "LAPSE.API.{PULL}" }}
    {{ stream: {{ account: LAPSE, subject: "_INBOX.app.>" }} }}
  ]
}} }}
"""


async def test_an_account_that_imports_the_log_reads_it_by_its_prefix(tmp_path: Path) -> None:
    config = tmp_path / "nats.conf"
    config.write_text(CONFIG)
    server = Serve(free_port(), "--store-dir", str(tmp_path / "store"), "--nats-config", str(config))
    url = f"nats://127.0.0.1:{server.port}"
    options: dict[str, Any] = {"user": "app", "password": "secret", "api_prefix": "LAPSE.API", "timeout": 3}
    async with (
        server,
        lapse.connect(url, inbox_prefix="_INBOX.app", **options) as db,
        lapse.connect(url, inbox_prefix="_INBOX.elsewhere", **options) as elsewhere,
    ):
        await db.create_collection("c")
        for start in (0, 300, 600):
            await db.collection("c").batch(lapse.Op.create(str(n), {"text": "x" * 10_000}) for n in range(start, start + 300))
        for durable in (None, "billing"):
            async with db.changes(durable=durable, from_="start", until="now", types=["DocumentCreated"]) as events:
                assert [e.id for e in await listed(events)] == [str(n) for n in range(900)]
        async with db.changes(durable="other", from_="start") as events:
            assert "import $JS.API.CONSUMER.MSG.NEXT.LAPSE_main.other" in str(await refused(anext(events)))
        async with elsewhere.changes(from_="start") as events:
            e = await refused(anext(events))
            assert e.code == 503 and ("_INBOX.elsewhere" in str(e) or "_INBOX.app" in str(e)), str(e)
