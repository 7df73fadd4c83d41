"""What a submission remembers."""

from headrace._commanding.deciding import Repeated, Unchanged
from headrace._commanding.submission import Delivery, Submission
from headrace.serialization import CommandEnvelope


def test_a_new_decision_takes_the_place_of_the_old_one_and_of_what_became_of_it(bank):
    envelope = CommandEnvelope(
        command=bank.Look(account_id="a-1"), command_id="c-1", correlation_id="c-1"
    )
    delivery = Delivery(message=None, subscription=None)
    submission = Submission(envelope, delivery)
    assert (submission.command_id, submission.deliveries) == ("c-1", [delivery])
    submission.decided(Unchanged())
    submission.durable = True
    submission.recalling = True
    submission.decided(Repeated())
    assert (submission.decision, submission.durable, submission.recalling) == (
        Repeated(),
        False,
        False,
    )
