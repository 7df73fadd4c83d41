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
    sent bigint NOT NULL
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
CREATE TABLE public.projection_generations (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    version integer NOT NULL,
    as_of text,
    followed boolean DEFAULT false NOT NULL,
    by_command boolean DEFAULT false NOT NULL
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
CREATE TABLE public.scheduled_messages (
    number bigint NOT NULL,
    due timestamp with time zone NOT NULL,
    topic character varying(249) NOT NULL,
    message bytea NOT NULL
);
CREATE SEQUENCE public.scheduled_messages_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.scheduled_messages_number_seq OWNED BY public.scheduled_messages.number;
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
CREATE TABLE public.subject_keys (
    subject character varying(255) NOT NULL,
    key bytea,
    wrapped boolean NOT NULL,
    made_at timestamp with time zone NOT NULL,
    forgotten_at timestamp with time zone
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
ALTER TABLE ONLY public.scheduled_messages ALTER COLUMN number SET DEFAULT nextval('public.scheduled_messages_number_seq'::regclass);
INSERT INTO public.balances__1 VALUES ('a2', 5);
INSERT INTO public.balances__1 VALUES ('a1', 505);
INSERT INTO public.balances__1 VALUES ('a4', 12);
INSERT INTO public.balances__1 VALUES ('a5', 7);
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a224c2-9296-7253-be84-aa540b4bf498', '2026-11-29 00:44:22.96343+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a224c2-9296-7253-be84-aa540b4bf498","correlation_id":"01a224c2-9296-7253-be84-aa540b4bf498","recorded_at":"2026-11-29T00:44:22.963430Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 185181010);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a224c2-9c9e-7264-a489-d44175e5f88a', '2026-11-29 00:44:23.688731+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a224c2-9c9e-7264-a489-d44175e5f88a","correlation_id":"01a224c2-9c9e-7264-a489-d44175e5f88a","recorded_at":"2026-11-29T00:44:23.688731Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 2314474294);
INSERT INTO public.event_streams VALUES (3, 'a1', 'Account', 2, 'afe17ed3-a454-563e-a444-68418b0e5cf4', '2026-11-29 00:44:23.926389+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"afe17ed3-a454-563e-a444-68418b0e5cf4","correlation_id":"01a224c2-9296-7253-be84-aa540b4bf498","recorded_at":"2026-11-29T00:44:23.926389Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 347897705);
INSERT INTO public.event_streams VALUES (4, 'a3', 'Account', 1, '01a224c2-9de1-712d-85b1-ac5e6d8da744', '2026-11-29 00:44:23.940863+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a224c2-9de1-712d-85b1-ac5e6d8da744","correlation_id":"01a224c2-9de1-712d-85b1-ac5e6d8da744","recorded_at":"2026-11-29T00:44:23.940863Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 2879947481);
INSERT INTO public.event_streams VALUES (5, 'a4', 'Account', 1, '01a224c2-9e17-7518-aa6d-f2aad646ffaf', '2026-11-29 00:44:24.000765+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a224c2-9e17-7518-aa6d-f2aad646ffaf","correlation_id":"01a224c2-9e17-7518-aa6d-f2aad646ffaf","recorded_at":"2026-11-29T00:44:24.000765Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 29271401);
INSERT INTO public.event_streams VALUES (6, 'a5', 'Account', 1, '01a224c2-9e4f-7729-ae02-fb701640af9f', '2026-11-29 00:44:24.020593+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a224c2-9e4f-7729-ae02-fb701640af9f","correlation_id":"01a224c2-9e4f-7729-ae02-fb701640af9f","recorded_at":"2026-11-29T00:44:24.020593Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 4145234506);
INSERT INTO public.event_streams VALUES (7, 'a2', 'Account', 2, '21e0025a-28b9-5837-baa6-852b39319fa9', '2026-11-29 00:44:24.048662+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"21e0025a-28b9-5837-baa6-852b39319fa9","correlation_id":"01a224c2-9c9e-7264-a489-d44175e5f88a","recorded_at":"2026-11-29T00:44:24.048662Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 1587402247);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 3, '01a224c2-9e69-7590-9cbe-d301fce2c311', '2026-11-29 00:44:24.052257+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a224c2-9e69-7590-9cbe-d301fce2c311","correlation_id":"01a224c2-9e69-7590-9cbe-d301fce2c311","recorded_at":"2026-11-29T00:44:24.052257Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}', 1059768089);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 4, '01a224c2-9e92-73f7-a6d5-a2a91cb6ad49', '2026-11-29 00:44:24.147422+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a224c2-9e92-73f7-a6d5-a2a91cb6ad49","correlation_id":"01a224c2-9e92-73f7-a6d5-a2a91cb6ad49","recorded_at":"2026-11-29T00:44:24.147422Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 1959973123);
INSERT INTO public.event_streams VALUES (10, 'a3', 'Account', 2, '440af1f3-9edd-5458-a1ca-cac88dd89716', '2026-11-29 00:44:24.31567+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"440af1f3-9edd-5458-a1ca-cac88dd89716","correlation_id":"01a224c2-9de1-712d-85b1-ac5e6d8da744","recorded_at":"2026-11-29T00:44:24.315670Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 1577096058);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 5, '01a224c2-9f9f-76a7-b9d3-6428f5c5c778', '2026-11-29 00:44:24.395885+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a224c2-9f9f-76a7-b9d3-6428f5c5c778","correlation_id":"01a224c2-9f9f-76a7-b9d3-6428f5c5c778","recorded_at":"2026-11-29T00:44:24.395885Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 4107164756);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', 6, '01a224c2-a02d-7420-a603-cd3fff6c097d', '2026-11-29 00:44:24.494865+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a224c2-a02d-7420-a603-cd3fff6c097d","correlation_id":"01a224c2-a02d-7420-a603-cd3fff6c097d","recorded_at":"2026-11-29T00:44:24.494865Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 2546502034);
INSERT INTO public.event_streams VALUES (13, 'a1', 'Account', 7, '01a224c2-a04a-7188-aa3c-06870c3700b5', '2026-11-29 00:44:24.538031+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a224c2-a04a-7188-aa3c-06870c3700b5","correlation_id":"01a224c2-a04a-7188-aa3c-06870c3700b5","recorded_at":"2026-11-29T00:44:24.538031Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 3907922378);
INSERT INTO public.event_streams VALUES (14, 'a1', 'Account', NULL, '01a224c2-a0bf-71e3-809a-b2f53a7403a6', '2026-11-29 00:44:24.647217+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a224c2-a0bf-71e3-809a-b2f53a7403a6","correlation_id":"01a224c2-a0bf-71e3-809a-b2f53a7403a6","recorded_at":"2026-11-29T00:44:24.647217Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 3734737074);
INSERT INTO public.event_streams VALUES (15, 'a3', 'Account', 3, '01a224c2-a0e2-749c-85af-e702090e6985', '2026-11-29 00:44:24.690447+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a224c2-a0e2-749c-85af-e702090e6985","correlation_id":"01a224c2-a0e2-749c-85af-e702090e6985","recorded_at":"2026-11-29T00:44:24.690447Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}', 3784172161);
INSERT INTO public.event_streams VALUES (16, 'a4', 'Account', 2, '01a224c2-a165-752f-9e46-0ffc5c6b6c39', '2026-11-29 00:44:24.967423+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a224c2-a165-752f-9e46-0ffc5c6b6c39","correlation_id":"01a224c2-a165-752f-9e46-0ffc5c6b6c39","recorded_at":"2026-11-29T00:44:24.967423Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3194151985);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304', '2026-11-29 00:44:25.067273+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304","correlation_id":"01a224c2-9e17-7518-aa6d-f2aad646ffaf","recorded_at":"2026-11-29T00:44:25.067273Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 1858511831);
INSERT INTO public.event_streams VALUES (18, 'a5', 'Account', 2, '01a224c2-a2ef-74b0-8871-a3b08a9e1de5', '2026-11-29 00:44:25.258104+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a224c2-a2ef-74b0-8871-a3b08a9e1de5","correlation_id":"01a224c2-a2ef-74b0-8871-a3b08a9e1de5","recorded_at":"2026-11-29T00:44:25.258104Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3984538634);
INSERT INTO public.headrace_schema VALUES ('0019');
INSERT INTO public.parked VALUES (2, 'balances', 1, 'a3', '', '', 'parked', '2026-11-29 00:44:24.065457+00', 1, 'ProjectionError', 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 'Traceback (most recent call last):
  File "framework/headrace/projections/definition/fold.py", line 130, in fold_facts
    changes[key] = next_row(before, event, context, key)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/rules.py", line 89, in next_row
    else fold(row, event, context)
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
  File "framework/headrace/projections/batch_transaction.py", line 250, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 324, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 132, in fold_facts
    raise_poisoned(projection, event, context, error)
  File "framework/headrace/projections/definition/fold.py", line 201, in raise_poisoned
    raise ProjectionError(
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 3, NULL, 'ledger.events', 2, 0, NULL);
INSERT INTO public.parked VALUES (1, 'handlers:events', 0, 'a4', '', '', 'parked', '2026-11-29 00:44:24.024766+00', 1, 'EventHandlerError', 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 216, in _call
    await self.reader.attempt(call, "handle an event", final=final)
  File "framework/headrace/subscriptions/reader.py", line 322, in attempt
    result = await self._backoff.persist(
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/_runtime/backoff.py", line 79, in persist
    return await action()
           ^^^^^^^^^^^^^^
  File "framework/headrace/handlers/call.py", line 62, in _call
    raise told
  File "framework/headrace/handlers/call.py", line 54, in _call
    await deadline.run(handler(event, context))
  File "framework/headrace/_runtime/handler_deadline.py", line 33, in run
    awaited = work.send(None)
              ^^^^^^^^^^^^^^^
  File "tests/golden/application/ledger.py", line 121, in write_letter
    raise ValueError("the handler is broken")
ValueError: the handler is broken
The above exception was the direct cause of the following exception:
Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 147, in react
    await self._handle(message, state)
  File "framework/headrace/handlers/runner.py", line 179, in _handle
    await call_all(self._handlers, stream, self._call)
  File "framework/headrace/handlers/call.py", line 45, in call_all
    raise EventHandlerError(
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 3, NULL, 'ledger.events', 1, 3, NULL);
INSERT INTO public.parked VALUES (3, 'commands:', 0, 'a2', '01a224c2-a3fe-707e-ad9d-db47f3fd3839', 'Deposit', 'holding', '2026-11-29 00:44:25.592707+00', 1, 'ValueError', 'the command handler is broken', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92465333133653864382d313166332d343535332d616439382d336132653534343063313231b17265706c792d636f7272656c6174696f6ed92430316132323463322d613366652d373037652d616439642d646234383537383463653661a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132323463322d613366652d373037652d616439642d646234376633666433383339222c22636f7272656c6174696f6e5f6964223a2230316132323463322d613366652d373037652d616439642d646234376633666433383339222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (4, 'commands:', 0, 'a2', '01a224c2-a57e-7062-97d4-7db38a86fa59', 'Deposit', 'held', '2026-11-29 00:44:26.011761+00', 1, 'Held', 'command 01a224c2-a3fe-707e-ad9d-db47f3fd3839 of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id', '', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92465333133653864382d313166332d343535332d616439382d336132653534343063313231b17265706c792d636f7272656c6174696f6ed92430316132323463322d613537652d373036322d393764342d376462343738633238376235a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132323463322d613537652d373036322d393764342d376462333861383666613539222c22636f7272656c6174696f6e5f6964223a2230316132323463322d613537652d373036322d393764342d376462333861383666613539222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (5, 'instances:greetings', 0, 'a5', '', '', 'parked', '2026-11-29 00:44:25.710316+00', 1, 'ValueError', 'Opened of a5: ValueError(''the process is broken'')', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken', 1, NULL, 'ledger.events', 2, 1, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '0f7490a6-58e0-5cf3-84fc-725f9048030f', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"0f7490a6-58e0-5cf3-84fc-725f9048030f","correlation_id":"01a224c2-9296-7253-be84-aa540b4bf498","data":{"account_id":"a1"},"items":{}}', '2027-09-25 00:44:22.96343+00', '2026-11-29 00:44:23.742316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'afe17ed3-a454-563e-a444-68418b0e5cf4', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"afe17ed3-a454-563e-a444-68418b0e5cf4","correlation_id":"01a224c2-9296-7253-be84-aa540b4bf498","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-29 00:44:23.742316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '21e0025a-28b9-5837-baa6-852b39319fa9', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"21e0025a-28b9-5837-baa6-852b39319fa9","correlation_id":"01a224c2-9c9e-7264-a489-d44175e5f88a","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-29 00:44:24.004316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '440af1f3-9edd-5458-a1ca-cac88dd89716', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"440af1f3-9edd-5458-a1ca-cac88dd89716","correlation_id":"01a224c2-9de1-712d-85b1-ac5e6d8da744","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-29 00:44:24.004316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '8aee7a0b-a2e3-57b9-9303-d059c80f1441', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"8aee7a0b-a2e3-57b9-9303-d059c80f1441","correlation_id":"01a224c2-9c9e-7264-a489-d44175e5f88a","data":{"account_id":"a2"},"items":{}}', '2027-09-25 00:44:23.688731+00', '2026-11-29 00:44:24.004316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'c195c89c-6c92-5eb7-b526-c75972fd3f2c', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"c195c89c-6c92-5eb7-b526-c75972fd3f2c","correlation_id":"01a224c2-9de1-712d-85b1-ac5e6d8da744","data":{"account_id":"a3"},"items":{}}', '2027-09-25 00:44:23.940863+00', '2026-11-29 00:44:24.004316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '21362d0e-a132-51fd-ac98-2f2b8b51852b', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"21362d0e-a132-51fd-ac98-2f2b8b51852b","correlation_id":"01a224c2-9e17-7518-aa6d-f2aad646ffaf","data":{"account_id":"a4"},"items":{}}', '2027-09-25 00:44:24.000765+00', '2026-11-29 00:44:24.496316+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304","correlation_id":"01a224c2-9e17-7518-aa6d-f2aad646ffaf","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-29 00:44:24.496316+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-29 00:44:23.742316+00', '2026-11-29 00:44:23.742316+00', 'Opened', 'a1', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-29 00:44:24.004316+00', '2026-11-29 00:44:24.004316+00', 'Opened', 'a2', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-29 00:44:24.004316+00', '2026-11-29 00:44:24.004316+00', 'Opened', 'a3', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-29 00:44:24.496316+00', '2026-11-29 00:44:24.496316+00', 'Opened', 'a4', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-29 00:44:25.710316+00', '2026-11-29 00:44:25.710316+00', 'Opened', 'a5', 1, 0);
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a224c2-9296-7253-be84-aa540b4bf498', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a224c2-9c9e-7264-a489-d44175e5f88a', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a224c2-9de1-712d-85b1-ac5e6d8da744', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a224c2-9e17-7518-aa6d-f2aad646ffaf', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a224c2-9e4f-7729-ae02-fb701640af9f', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_generations VALUES ('balances', 1, 1, NULL, true, true);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 1, 13);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 2, 5);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a3', 3);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a4', 3);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a5', 2);
INSERT INTO public.projections VALUES ('balances', 1, NULL, '6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19', NULL, NULL, NULL, NULL);
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 13, '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304', 'a4', '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 5, '01a224c2-a2ef-74b0-8871-a3b08a9e1de5', 'a5', '01a224c2-a2ef-74b0-8871-a3b08a9e1de5');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 13, '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304', 'a4', '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 5, '01a224c2-a2ef-74b0-8871-a3b08a9e1de5', 'a5', '01a224c2-a2ef-74b0-8871-a3b08a9e1de5');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 13, '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304', 'a4', '62ca3e0e-4d35-5c3d-a6ab-d04cd3e9b304');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, 'bcc71d38-9857-4cba-b349-61d27c475f3e', '01a224c2-9142-7199-a1cb-afe61140fc98', 5, '01a224c2-a2ef-74b0-8871-a3b08a9e1de5', 'a5', '01a224c2-a2ef-74b0-8871-a3b08a9e1de5');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a224c2-9142-7199-a1cb-afe61140fc98', '\x21999f2709c940f0a20844c0e2b7d2fb4dd5dbfe40e070fd6259d1ff02195b38', '2026-11-29 00:44:20.674445+00');
SELECT pg_catalog.setval('public.event_streams_position_seq', 18, true);
SELECT pg_catalog.setval('public.parked_number_seq', 5, true);
SELECT pg_catalog.setval('public.scheduled_messages_number_seq', 1, false);
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
ALTER TABLE ONLY public.projection_generations
    ADD CONSTRAINT projection_generations_pkey PRIMARY KEY (name, generation);
ALTER TABLE ONLY public.projection_offsets
    ADD CONSTRAINT projection_offsets_pkey PRIMARY KEY (name, generation, topic, queue_id);
ALTER TABLE ONLY public.projection_versions
    ADD CONSTRAINT projection_versions_pkey PRIMARY KEY (name, generation, aggregate_id);
ALTER TABLE ONLY public.projections
    ADD CONSTRAINT projections_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.reader_marks
    ADD CONSTRAINT reader_marks_pkey PRIMARY KEY (name, generation, queue_id);
ALTER TABLE ONLY public.scheduled_messages
    ADD CONSTRAINT scheduled_messages_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (aggregate_id);
ALTER TABLE ONLY public.store_identity
    ADD CONSTRAINT store_identity_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.subject_keys
    ADD CONSTRAINT subject_keys_pkey PRIMARY KEY (subject);
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
CREATE INDEX ix_scheduled_messages_due ON public.scheduled_messages USING btree (due, number);
