"""An application and its client at a broker with a login, each as a user of its own."""

from pathlib import Path

from pydantic import SecretStr

from headrace import Settings
from headrace_mq import AdminClient, Broker
from headrace_mq.broker.stopped_broker import add_user
from headrace_mq.settings import BrokerSettings, StoreSettings
from samples.bank import app
from samples.bank.accounts import OpenAccount


async def test_an_application_serves_its_client_with_the_permissions_of_the_page(
    tmp_path: Path,
) -> None:
    def login(user: str) -> str:
        return f"tcp://{broker.address}?user={user}&password_file={file}"

    file = tmp_path / "password"
    file.write_text("pencil\n")
    file.chmod(0o600)
    add_user(tmp_path / "broker", "root", SecretStr("pencil"), admin=True)
    store = StoreSettings(directory=tmp_path / "broker", segment_bytes=1 << 20)
    broker = Broker(BrokerSettings(port=0, store=store, login=True))
    async with broker, AdminClient(login("root")) as admin:
        for name in ("bank", "teller"):
            await admin.add_user(name, SecretStr("pencil"))
        for action in ("publish", "consume", "create"):
            await admin.set_rule("bank", action, "topic:bank.*", allows=True)
        await admin.set_rule("bank", "consume", "group:bank.*", allows=True)
        for action in ("publish", "create"):
            await admin.set_rule("teller", action, "topic:bank.commands*", allows=True)
        settings = Settings(broker=login("bank"), read_models=f"sqlite:///{tmp_path}/read.db")
        async with app.run(settings), app.client(Settings(broker=login("teller"))) as bus:
            opened = await bus.execute(OpenAccount(account_id="ann", owner="Ann"))
            assert opened.status == "executed", opened
