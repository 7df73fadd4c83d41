SELECT pg_catalog.set_config('search_path', '', false);
CREATE TABLE public.balances__1 (
    account_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    balance bigint NOT NULL
);
CREATE VIEW public.balances AS
 SELECT account_id,
    balance
   FROM public.balances__1;
CREATE TABLE public.event_streams (
    "position" bigint NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    aggregate_type character varying(127) NOT NULL,
    version bigint,
    command_id character varying(255) NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    body text NOT NULL,
    checksum bigint
);
CREATE SEQUENCE public.event_streams_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.event_streams_position_seq OWNED BY public.event_streams."position";
CREATE TABLE public.headrace_schema (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.parked (
    number bigint NOT NULL,
    name character varying(127) NOT NULL,
    generation integer NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL,
    command text NOT NULL,
    state character varying(7) NOT NULL,
    parked_at timestamp with time zone NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    sentence text NOT NULL,
    traceback text NOT NULL,
    held bigint NOT NULL,
    version bigint,
    topic character varying(127),
    queue_id integer,
    message_offset bigint,
    message bytea
);
CREATE SEQUENCE public.parked_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.parked_number_seq OWNED BY public.parked.number;
CREATE TABLE public.process_commands (
    process character varying(127) NOT NULL,
    command_id character varying(36) NOT NULL,
    instance character varying(255) NOT NULL,
    number bigint NOT NULL,
    name character varying(127) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    body text NOT NULL,
    due timestamp with time zone,
    made_at timestamp with time zone NOT NULL,
    sent boolean NOT NULL,
    refused text
);
CREATE TABLE public.process_instances (
    process character varying(127) NOT NULL,
    instance character varying(255) NOT NULL,
    state text,
    state_version integer NOT NULL,
    undo text NOT NULL,
    ended boolean NOT NULL,
    began_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    last_event character varying(127) NOT NULL,
    last_aggregate_id character varying(255) NOT NULL,
    seen bigint NOT NULL,
    sent bigint NOT NULL,
    error text,
    parked_at timestamp with time zone,
    retries integer NOT NULL,
    traceback text
);
CREATE TABLE public.process_journal (
    process character varying(127) NOT NULL,
    instance character varying(255) NOT NULL,
    number bigint NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL,
    outcome character varying(8) NOT NULL
);
CREATE TABLE public.process_versions (
    process character varying(127) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE public.processes (
    name character varying(127) NOT NULL
);
CREATE TABLE public.projection_offsets (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    topic character varying(127) NOT NULL,
    queue_id integer NOT NULL,
    next_offset bigint NOT NULL
);
CREATE TABLE public.projection_versions (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE public.projections (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    previous_generation integer,
    fingerprint character varying(64) NOT NULL,
    rebuild_generation integer,
    rebuild_owner character varying(64),
    rebuild_started_at timestamp with time zone,
    paused_at timestamp with time zone
);
CREATE TABLE public.reader_marks (
    name character varying(150) NOT NULL,
    generation integer NOT NULL,
    queue_id integer NOT NULL,
    topic_identity character varying(36) NOT NULL,
    store_identity character varying(36) NOT NULL,
    next_offset bigint NOT NULL,
    message_id character varying(255) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL
);
CREATE TABLE public.snapshots (
    aggregate_id character varying(255) NOT NULL,
    aggregate_type character varying(127) NOT NULL,
    version bigint NOT NULL,
    state_version integer NOT NULL,
    body text NOT NULL
);
CREATE TABLE public.store_identity (
    number integer NOT NULL,
    store_id character varying(36) NOT NULL,
    seal_key bytea NOT NULL,
    made_at timestamp with time zone NOT NULL
);
CREATE TABLE public.topic_damages (
    topic character varying(150) NOT NULL,
    topic_identity character varying(36) NOT NULL,
    queue_id integer NOT NULL,
    next_offset bigint NOT NULL,
    first_offset bigint NOT NULL,
    noted_at timestamp with time zone NOT NULL,
    taken_by character varying(36),
    taken_until timestamp with time zone,
    filled boolean NOT NULL
);
ALTER TABLE ONLY public.event_streams ALTER COLUMN "position" SET DEFAULT nextval('public.event_streams_position_seq'::regclass);
ALTER TABLE ONLY public.parked ALTER COLUMN number SET DEFAULT nextval('public.parked_number_seq'::regclass);
INSERT INTO public.balances__1 VALUES ('a1', 505);
INSERT INTO public.balances__1 VALUES ('a2', 5);
INSERT INTO public.balances__1 VALUES ('a5', 7);
INSERT INTO public.balances__1 VALUES ('a4', 12);
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a20d49-d389-7265-8c75-77b091d86ef4', '2026-11-24 11:21:11.925172+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20d49-d389-7265-8c75-77b091d86ef4","correlation_id":"01a20d49-d389-7265-8c75-77b091d86ef4","recorded_at":"2026-11-24T11:21:11.925172Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 1923576111);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a20d49-d419-7411-a9d6-1dce4470e636', '2026-11-24 11:21:11.970195+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20d49-d419-7411-a9d6-1dce4470e636","correlation_id":"01a20d49-d419-7411-a9d6-1dce4470e636","recorded_at":"2026-11-24T11:21:11.970195Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 3612683739);
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a20d49-d42f-73b5-9896-e88e4e58e848', '2026-11-24 11:21:11.999592+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20d49-d42f-73b5-9896-e88e4e58e848","correlation_id":"01a20d49-d42f-73b5-9896-e88e4e58e848","recorded_at":"2026-11-24T11:21:11.999592Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 4206150899);
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a20d49-d450-777f-9c2d-e75506a6b9f0', '2026-11-24 11:21:12.019327+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20d49-d450-777f-9c2d-e75506a6b9f0","correlation_id":"01a20d49-d450-777f-9c2d-e75506a6b9f0","recorded_at":"2026-11-24T11:21:12.019327Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 3522855471);
INSERT INTO public.event_streams VALUES (5, 'a5', 'Account', 1, '01a20d49-d457-7445-adf6-2fa5167a6a0c', '2026-11-24 11:21:12.033152+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20d49-d457-7445-adf6-2fa5167a6a0c","correlation_id":"01a20d49-d457-7445-adf6-2fa5167a6a0c","recorded_at":"2026-11-24T11:21:12.033152Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 2402640333);
INSERT INTO public.event_streams VALUES (6, 'a1', 'Account', 2, 'f3130e26-ff1d-51dd-bd6e-9b0d4eb71823', '2026-11-24 11:21:12.04647+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"f3130e26-ff1d-51dd-bd6e-9b0d4eb71823","correlation_id":"01a20d49-d389-7265-8c75-77b091d86ef4","recorded_at":"2026-11-24T11:21:12.046470Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 2530257954);
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, '01a20d49-d479-70f1-a59b-1b1fdc21c0ff', '2026-11-24 11:21:12.061454+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20d49-d479-70f1-a59b-1b1fdc21c0ff","correlation_id":"01a20d49-d479-70f1-a59b-1b1fdc21c0ff","recorded_at":"2026-11-24T11:21:12.061454Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}', 435511397);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a20d49-d48c-7342-8d76-bc5df2a0a636', '2026-11-24 11:21:12.0822+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20d49-d48c-7342-8d76-bc5df2a0a636","correlation_id":"01a20d49-d48c-7342-8d76-bc5df2a0a636","recorded_at":"2026-11-24T11:21:12.082200Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 2517778857);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a20d49-d4a0-7164-b1f6-1ec88dd2216f', '2026-11-24 11:21:12.101123+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20d49-d4a0-7164-b1f6-1ec88dd2216f","correlation_id":"01a20d49-d4a0-7164-b1f6-1ec88dd2216f","recorded_at":"2026-11-24T11:21:12.101123Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 2377374502);
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a20d49-d4ad-7503-b003-43c2d377fbb1', '2026-11-24 11:21:12.111736+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20d49-d4ad-7503-b003-43c2d377fbb1","correlation_id":"01a20d49-d4ad-7503-b003-43c2d377fbb1","recorded_at":"2026-11-24T11:21:12.111736Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 3744220600);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a20d49-d4b7-771c-b4ef-1eac5f7188e8', '2026-11-24 11:21:12.120299+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20d49-d4b7-771c-b4ef-1eac5f7188e8","correlation_id":"01a20d49-d4b7-771c-b4ef-1eac5f7188e8","recorded_at":"2026-11-24T11:21:12.120299Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 3088792037);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a20d49-d4bd-76e7-bff5-6aa16abcbd7f', '2026-11-24 11:21:12.128821+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20d49-d4bd-76e7-bff5-6aa16abcbd7f","correlation_id":"01a20d49-d4bd-76e7-bff5-6aa16abcbd7f","recorded_at":"2026-11-24T11:21:12.128821Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 403229279);
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a20d49-d4c7-76ef-93f1-57491b4fda57', '2026-11-24 11:21:12.138108+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a20d49-d4c7-76ef-93f1-57491b4fda57","correlation_id":"01a20d49-d4c7-76ef-93f1-57491b4fda57","recorded_at":"2026-11-24T11:21:12.138108Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3839898678);
INSERT INTO public.event_streams VALUES (14, 'a2', 'Account', 2, '77665ca1-370a-565c-af2a-e62d4cdde809', '2026-11-24 11:21:12.143383+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"77665ca1-370a-565c-af2a-e62d4cdde809","correlation_id":"01a20d49-d419-7411-a9d6-1dce4470e636","recorded_at":"2026-11-24T11:21:12.143383Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 4293369219);
INSERT INTO public.event_streams VALUES (15, 'a4', 'Account', 2, '01a20d49-d4d0-738c-a272-18213c45b561', '2026-11-24 11:21:12.146593+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a20d49-d4d0-738c-a272-18213c45b561","correlation_id":"01a20d49-d4d0-738c-a272-18213c45b561","recorded_at":"2026-11-24T11:21:12.146593Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1512907661);
INSERT INTO public.event_streams VALUES (16, 'a5', 'Account', 2, '01a20d49-d4d6-759f-9464-8a70f58a7c63', '2026-11-24 11:21:12.15134+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20d49-d4d6-759f-9464-8a70f58a7c63","correlation_id":"01a20d49-d4d6-759f-9464-8a70f58a7c63","recorded_at":"2026-11-24T11:21:12.151340Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1107246185);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, '96f2075c-9606-50db-b098-2844165382de', '2026-11-24 11:21:12.168183+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"96f2075c-9606-50db-b098-2844165382de","correlation_id":"01a20d49-d450-777f-9c2d-e75506a6b9f0","recorded_at":"2026-11-24T11:21:12.168183Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 1023506661);
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, '99c9f4bc-bfa3-5724-811e-13c668030064', '2026-11-24 11:21:12.222806+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"99c9f4bc-bfa3-5724-811e-13c668030064","correlation_id":"01a20d49-d42f-73b5-9896-e88e4e58e848","recorded_at":"2026-11-24T11:21:12.222806Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 2560191567);
INSERT INTO public.headrace_schema VALUES ('0014');
INSERT INTO public.parked VALUES (3, 'commands:', 0, 'a2', '01a20d49-d4da-7329-8146-b4a4ea0e7a6c', 'Deposit', 'holding', '2026-11-24 11:21:12.158158+00', 1, 'ValueError', 'the command handler is broken', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92439353432306431362d353233312d346431642d396266392d343833303736303732343664b17265706c792d636f7272656c6174696f6ed92430316132306434392d643464612d373332392d383134362d623461353735636461303166a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306434392d643464612d373332392d383134362d623461346561306537613663222c22636f7272656c6174696f6e5f6964223a2230316132306434392d643464612d373332392d383134362d623461346561306537613663222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (4, 'commands:', 0, 'a2', '01a20d49-d4e4-721e-8684-681ce3ea12a4', 'Deposit', 'held', '2026-11-24 11:21:12.167097+00', 1, 'Held', 'command 01a20d49-d4da-7329-8146-b4a4ea0e7a6c of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id', '', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92439353432306431362d353233312d346431642d396266392d343833303736303732343664b17265706c792d636f7272656c6174696f6ed92430316132306434392d643465342d373231652d383638342d363831646562386361656534a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306434392d643465342d373231652d383638342d363831636533656131326134222c22636f7272656c6174696f6e5f6964223a2230316132306434392d643465342d373231652d383638342d363831636533656131326134222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (1, 'handlers:events', 0, 'a4', '', '', 'parked', '2026-11-24 11:21:12.050614+00', 1, 'EventHandlerError', 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 217, in _call
    await self.reader.attempt(call, "handle an event", final=final)
  File "framework/headrace/subscriptions/reader.py", line 250, in attempt
    result = await self._backoff.persist(
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/_runtime/backoff.py", line 76, in persist
    return await action()
           ^^^^^^^^^^^^^^
  File "framework/headrace/handlers/call.py", line 56, in _call
    await deadline.run(handler(event, context))
  File "framework/headrace/_runtime/handler_deadline.py", line 33, in run
    awaited = work.send(None)
              ^^^^^^^^^^^^^^^
  File "tests/golden/application/ledger.py", line 121, in write_letter
    raise ValueError("the handler is broken")
ValueError: the handler is broken
The above exception was the direct cause of the following exception:
Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 149, in react
    await self._handle(message, standing)
  File "framework/headrace/handlers/runner.py", line 181, in _handle
    await call_all(self._handlers, stream, self._call)
  File "framework/headrace/handlers/call.py", line 47, in call_all
    raise EventHandlerError(
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 3, NULL, 'ledger.events', 1, 2, NULL);
INSERT INTO public.parked VALUES (2, 'balances', 1, 'a3', '', '', 'parked', '2026-11-24 11:21:12.131106+00', 1, 'ProjectionError', 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 'Traceback (most recent call last):
  File "framework/headrace/projections/definition/fold.py", line 129, in fold_facts
    changes[key] = next_row(before, event, context, key)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/rules.py", line 85, in next_row
    after = fold(row, event, context, key) if takes_key else fold(row, event, context)
                                                             ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "tests/golden/application/ledger.py", line 87, in opened_account
    raise ValueError("the fold is broken")
ValueError: the fold is broken
The above exception was the direct cause of the following exception:
Traceback (most recent call last):
  File ".venv/lib/python3.11/site-packages/sqlalchemy/ext/asyncio/engine.py", line 907, in run_sync
    return await greenlet_spawn(
           ^^^^^^^^^^^^^^^^^^^^^
  File ".venv/lib/python3.11/site-packages/sqlalchemy/util/concurrency.py", line 216, in greenlet_spawn
    result = context.switch(value)
             ^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 232, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 305, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 3, NULL, 'ledger.events', 2, 0, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '8b781fd5-bd2a-5d8b-8b07-beca4c554096', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"8b781fd5-bd2a-5d8b-8b07-beca4c554096","correlation_id":"01a20d49-d389-7265-8c75-77b091d86ef4","data":{"account_id":"a1"},"items":{}}', '2027-09-20 11:21:11.925172+00', '2026-11-24 11:21:11.970746+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'f3130e26-ff1d-51dd-bd6e-9b0d4eb71823', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"f3130e26-ff1d-51dd-bd6e-9b0d4eb71823","correlation_id":"01a20d49-d389-7265-8c75-77b091d86ef4","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-24 11:21:11.970746+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '08817caf-b6fe-58af-aa68-60c658d7d4b1', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"08817caf-b6fe-58af-aa68-60c658d7d4b1","correlation_id":"01a20d49-d419-7411-a9d6-1dce4470e636","data":{"account_id":"a2"},"items":{}}', '2027-09-20 11:21:11.970195+00', '2026-11-24 11:21:12.108256+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '77665ca1-370a-565c-af2a-e62d4cdde809', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"77665ca1-370a-565c-af2a-e62d4cdde809","correlation_id":"01a20d49-d419-7411-a9d6-1dce4470e636","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-24 11:21:12.108256+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '5ab792d0-5602-507f-a4c2-c86665ffe8e0', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"5ab792d0-5602-507f-a4c2-c86665ffe8e0","correlation_id":"01a20d49-d450-777f-9c2d-e75506a6b9f0","data":{"account_id":"a4"},"items":{}}', '2027-09-20 11:21:12.019327+00', '2026-11-24 11:21:12.153995+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '96f2075c-9606-50db-b098-2844165382de', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"96f2075c-9606-50db-b098-2844165382de","correlation_id":"01a20d49-d450-777f-9c2d-e75506a6b9f0","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-24 11:21:12.153995+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '63c6102a-2b52-53d8-b4af-d07410b5b203', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"63c6102a-2b52-53d8-b4af-d07410b5b203","correlation_id":"01a20d49-d42f-73b5-9896-e88e4e58e848","data":{"account_id":"a3"},"items":{}}', '2027-09-20 11:21:11.999592+00', '2026-11-24 11:21:12.209723+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '99c9f4bc-bfa3-5724-811e-13c668030064', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"99c9f4bc-bfa3-5724-811e-13c668030064","correlation_id":"01a20d49-d42f-73b5-9896-e88e4e58e848","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-24 11:21:12.209723+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-24 11:21:11.970746+00', '2026-11-24 11:21:11.970746+00', 'Opened', 'a1', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-24 11:21:12.108256+00', '2026-11-24 11:21:12.108256+00', 'Opened', 'a2', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-24 11:21:12.153995+00', '2026-11-24 11:21:12.153995+00', 'Opened', 'a4', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-24 11:21:12.209723+00', '2026-11-24 11:21:12.209723+00', 'Opened', 'a3', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-24 11:21:12.226275+00', '2026-11-24 11:21:12.226275+00', 'Opened', 'a5', 1, 0, 'Opened of a5: ValueError(''the process is broken'')', '2026-11-24 11:21:12.226275+00', 0, 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken');
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a20d49-d389-7265-8c75-77b091d86ef4', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a20d49-d419-7411-a9d6-1dce4470e636', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a20d49-d450-777f-9c2d-e75506a6b9f0', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a20d49-d42f-73b5-9896-e88e4e58e848', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a20d49-d457-7445-adf6-2fa5167a6a0c', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 1, 13);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 2, 5);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a4', 3);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a3', 3);
INSERT INTO public.projections VALUES ('balances', 1, NULL, '6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19', NULL, NULL, NULL, NULL);
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 13, '96f2075c-9606-50db-b098-2844165382de', 'a4', '96f2075c-9606-50db-b098-2844165382de');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 5, '99c9f4bc-bfa3-5724-811e-13c668030064', 'a3', '99c9f4bc-bfa3-5724-811e-13c668030064');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 13, '96f2075c-9606-50db-b098-2844165382de', 'a4', '96f2075c-9606-50db-b098-2844165382de');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 5, '99c9f4bc-bfa3-5724-811e-13c668030064', 'a3', '99c9f4bc-bfa3-5724-811e-13c668030064');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 5, '01a20d49-d479-70f1-a59b-1b1fdc21c0ff', 'a1', '01a20d49-d479-70f1-a59b-1b1fdc21c0ff');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, '69d0ea79-f653-485e-8835-959bbd769cbf', '01a20d49-d35f-71f6-82d8-525e8f08f563', 2, '01a20d49-d457-7445-adf6-2fa5167a6a0c', 'a5', '01a20d49-d457-7445-adf6-2fa5167a6a0c');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a20d49-d35f-71f6-82d8-525e8f08f563', '\x27293a4acb66420fa7e6648b27f167ac875e209923f37205d05dfcd2bd2fb513', '2026-11-24 11:21:11.775482+00');
SELECT pg_catalog.setval('public.event_streams_position_seq', 18, true);
SELECT pg_catalog.setval('public.parked_number_seq', 4, true);
ALTER TABLE ONLY public.balances__1
    ADD CONSTRAINT balances__1_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT event_streams_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY public.headrace_schema
    ADD CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.process_commands
    ADD CONSTRAINT process_commands_pkey PRIMARY KEY (process, command_id);
ALTER TABLE ONLY public.process_instances
    ADD CONSTRAINT process_instances_pkey PRIMARY KEY (process, instance);
ALTER TABLE ONLY public.process_journal
    ADD CONSTRAINT process_journal_pkey PRIMARY KEY (process, instance, number);
ALTER TABLE ONLY public.process_versions
    ADD CONSTRAINT process_versions_pkey PRIMARY KEY (process, aggregate_id);
ALTER TABLE ONLY public.processes
    ADD CONSTRAINT processes_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.projection_offsets
    ADD CONSTRAINT projection_offsets_pkey PRIMARY KEY (name, generation, topic, queue_id);
ALTER TABLE ONLY public.projection_versions
    ADD CONSTRAINT projection_versions_pkey PRIMARY KEY (name, generation, aggregate_id);
ALTER TABLE ONLY public.projections
    ADD CONSTRAINT projections_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.reader_marks
    ADD CONSTRAINT reader_marks_pkey PRIMARY KEY (name, generation, queue_id);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (aggregate_id);
ALTER TABLE ONLY public.store_identity
    ADD CONSTRAINT store_identity_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.topic_damages
    ADD CONSTRAINT topic_damages_pkey PRIMARY KEY (topic, topic_identity, queue_id, next_offset);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_command UNIQUE (aggregate_id, command_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_version UNIQUE (aggregate_id, version);
ALTER TABLE ONLY public.parked
    ADD CONSTRAINT uq_parked_place UNIQUE (name, generation, aggregate_id, command_id);
ALTER TABLE ONLY public.process_journal
    ADD CONSTRAINT uq_process_journal_cause UNIQUE (process, instance, aggregate_id, command_id);
CREATE INDEX ix_process_commands_instance ON public.process_commands USING btree (process, instance, number);
CREATE INDEX ix_process_commands_unsent ON public.process_commands USING btree (process, sent, due);
CREATE INDEX ix_process_instances_ended ON public.process_instances USING btree (process, ended, changed_at);
CREATE INDEX ix_process_instances_parked ON public.process_instances USING btree (process, parked_at) WHERE (parked_at IS NOT NULL);
