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
INSERT INTO public.balances__1 VALUES ('a1', 505);
INSERT INTO public.balances__1 VALUES ('a2', 5);
INSERT INTO public.balances__1 VALUES ('a5', 7);
INSERT INTO public.balances__1 VALUES ('a4', 12);
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a22163-6384-7126-9208-b134652a4a0e', '2026-11-28 09:01:31.473024+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a22163-6384-7126-9208-b134652a4a0e","correlation_id":"01a22163-6384-7126-9208-b134652a4a0e","recorded_at":"2026-11-28T09:01:31.473024Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 3336787731);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a22163-640f-73be-9ff3-a58e84efbab1', '2026-11-28 09:01:31.539811+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a22163-640f-73be-9ff3-a58e84efbab1","correlation_id":"01a22163-640f-73be-9ff3-a58e84efbab1","recorded_at":"2026-11-28T09:01:31.539811Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 2123997595);
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a22163-6423-7007-a58b-fdd6fb752fdd', '2026-11-28 09:01:31.573387+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a22163-6423-7007-a58b-fdd6fb752fdd","correlation_id":"01a22163-6423-7007-a58b-fdd6fb752fdd","recorded_at":"2026-11-28T09:01:31.573387Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 105200479);
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a22163-644b-73f7-b2d3-2bb49aa3dff5', '2026-11-28 09:01:31.606406+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a22163-644b-73f7-b2d3-2bb49aa3dff5","correlation_id":"01a22163-644b-73f7-b2d3-2bb49aa3dff5","recorded_at":"2026-11-28T09:01:31.606406Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 2569424460);
INSERT INTO public.event_streams VALUES (5, 'a5', 'Account', 1, '01a22163-645b-75bb-a007-7a4bc8536544', '2026-11-28 09:01:31.617431+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a22163-645b-75bb-a007-7a4bc8536544","correlation_id":"01a22163-645b-75bb-a007-7a4bc8536544","recorded_at":"2026-11-28T09:01:31.617431Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 3612988689);
INSERT INTO public.event_streams VALUES (6, 'a1', 'Account', 2, '01a22163-646f-7492-8e75-37572f2efd6c', '2026-11-28 09:01:31.63681+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"01a22163-646f-7492-8e75-37572f2efd6c","correlation_id":"01a22163-646f-7492-8e75-37572f2efd6c","recorded_at":"2026-11-28T09:01:31.636810Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":100}}],"rejection":null}', 141620575);
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, 'd4dd2a54-d005-5eeb-b4ed-6868420fae71', '2026-11-28 09:01:31.658124+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"d4dd2a54-d005-5eeb-b4ed-6868420fae71","correlation_id":"01a22163-6384-7126-9208-b134652a4a0e","recorded_at":"2026-11-28T09:01:31.658124Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":105}}],"rejection":null}', 3675368875);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a22163-648b-7707-b886-1bc50794bdec', '2026-11-28 09:01:31.662535+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a22163-648b-7707-b886-1bc50794bdec","correlation_id":"01a22163-648b-7707-b886-1bc50794bdec","recorded_at":"2026-11-28T09:01:31.662535Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 2596149579);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a22163-64a7-7052-a912-639120a7b463', '2026-11-28 09:01:31.839705+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a22163-64a7-7052-a912-639120a7b463","correlation_id":"01a22163-64a7-7052-a912-639120a7b463","recorded_at":"2026-11-28T09:01:31.839705Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 573741965);
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a22163-654c-7356-ae1b-fe754f80f5e4', '2026-11-28 09:01:31.855168+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a22163-654c-7356-ae1b-fe754f80f5e4","correlation_id":"01a22163-654c-7356-ae1b-fe754f80f5e4","recorded_at":"2026-11-28T09:01:31.855168Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 294473202);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a22163-6559-737a-83f0-a477e24e0475', '2026-11-28 09:01:31.869391+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a22163-6559-737a-83f0-a477e24e0475","correlation_id":"01a22163-6559-737a-83f0-a477e24e0475","recorded_at":"2026-11-28T09:01:31.869391Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 693952820);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a22163-6568-77b1-9cb3-fda239c9fa23', '2026-11-28 09:01:31.884258+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a22163-6568-77b1-9cb3-fda239c9fa23","correlation_id":"01a22163-6568-77b1-9cb3-fda239c9fa23","recorded_at":"2026-11-28T09:01:31.884258Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 867126648);
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a22163-6578-7174-a038-e65c3218cfbf', '2026-11-28 09:01:31.902451+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a22163-6578-7174-a038-e65c3218cfbf","correlation_id":"01a22163-6578-7174-a038-e65c3218cfbf","recorded_at":"2026-11-28T09:01:31.902451Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3261588622);
INSERT INTO public.event_streams VALUES (14, 'a4', 'Account', 2, '01a22163-6588-7112-ad99-838cc5ac3b63', '2026-11-28 09:01:31.9185+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a22163-6588-7112-ad99-838cc5ac3b63","correlation_id":"01a22163-6588-7112-ad99-838cc5ac3b63","recorded_at":"2026-11-28T09:01:31.918500Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1310306632);
INSERT INTO public.event_streams VALUES (15, 'a2', 'Account', 2, '3e2e8bf8-4fca-51a8-b0d1-6b333f0f96d1', '2026-11-28 09:01:31.919197+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"3e2e8bf8-4fca-51a8-b0d1-6b333f0f96d1","correlation_id":"01a22163-640f-73be-9ff3-a58e84efbab1","recorded_at":"2026-11-28T09:01:31.919197Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 1339015505);
INSERT INTO public.event_streams VALUES (16, 'a5', 'Account', 2, '01a22163-659b-76ff-999c-042fcf6c6e45', '2026-11-28 09:01:31.934651+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a22163-659b-76ff-999c-042fcf6c6e45","correlation_id":"01a22163-659b-76ff-999c-042fcf6c6e45","recorded_at":"2026-11-28T09:01:31.934651Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 2161893484);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, '853c3982-cac4-5cfe-b798-e07de99dae14', '2026-11-28 09:01:31.987801+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"853c3982-cac4-5cfe-b798-e07de99dae14","correlation_id":"01a22163-644b-73f7-b2d3-2bb49aa3dff5","recorded_at":"2026-11-28T09:01:31.987801Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 4134229517);
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, '29b0b737-aa41-5c73-8d0e-2f30383fc78d', '2026-11-28 09:01:32.091519+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"29b0b737-aa41-5c73-8d0e-2f30383fc78d","correlation_id":"01a22163-6423-7007-a58b-fdd6fb752fdd","recorded_at":"2026-11-28T09:01:32.091519Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 2659362352);
INSERT INTO public.headrace_schema VALUES ('0018');
INSERT INTO public.parked VALUES (3, 'commands:', 0, 'a2', '01a22163-65aa-750c-bf0f-0c8efbec9681', 'Deposit', 'holding', '2026-11-28 09:01:31.957855+00', 1, 'ValueError', 'the command handler is broken', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92436306333323466322d643436622d346262372d393031302d336636323661363239626166b17265706c792d636f7272656c6174696f6ed92430316132323136332d363561612d373530632d626630662d306338663737336263363236a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132323136332d363561612d373530632d626630662d306338656662656339363831222c22636f7272656c6174696f6e5f6964223a2230316132323136332d363561612d373530632d626630662d306338656662656339363831222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (1, 'handlers:events', 0, 'a4', '', '', 'parked', '2026-11-28 09:01:31.632018+00', 1, 'EventHandlerError', 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 215, in _call
    await self.reader.attempt(call, "handle an event", final=final)
  File "framework/headrace/subscriptions/reader.py", line 257, in attempt
    result = await self._backoff.persist(
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/_runtime/backoff.py", line 79, in persist
    return await action()
           ^^^^^^^^^^^^^^
  File "framework/headrace/handlers/call.py", line 53, in _call
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
  File "framework/headrace/handlers/call.py", line 44, in call_all
    raise EventHandlerError(
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 3, NULL, 'ledger.events', 1, 2, NULL);
INSERT INTO public.parked VALUES (4, 'commands:', 0, 'a2', '01a22163-65cd-7046-a9a2-62d3855166fb', 'Deposit', 'held', '2026-11-28 09:01:32.019272+00', 1, 'Held', 'command 01a22163-65aa-750c-bf0f-0c8efbec9681 of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id', '', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92436306333323466322d643436622d346262372d393031302d336636323661363239626166b17265706c792d636f7272656c6174696f6ed92430316132323136332d363563642d373034362d613961322d363264343339363264323132a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132323136332d363563642d373034362d613961322d363264333835353136366662222c22636f7272656c6174696f6e5f6964223a2230316132323136332d363563642d373034362d613961322d363264333835353136366662222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (5, 'instances:greetings', 0, 'a5', '', '', 'parked', '2026-11-28 09:01:32.133323+00', 1, 'ValueError', 'Opened of a5: ValueError(''the process is broken'')', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken', 1, NULL, 'ledger.events', 2, 1, NULL);
INSERT INTO public.parked VALUES (2, 'balances', 1, 'a3', '', '', 'parked', '2026-11-28 09:01:31.90874+00', 1, 'ProjectionError', 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 'Traceback (most recent call last):
  File "framework/headrace/projections/definition/fold.py", line 129, in fold_facts
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
  File "framework/headrace/projections/batch_transaction.py", line 231, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 305, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 3, NULL, 'ledger.events', 2, 0, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '28a1f96c-7143-5d3f-aa99-affc6e29dcc4', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"28a1f96c-7143-5d3f-aa99-affc6e29dcc4","correlation_id":"01a22163-6384-7126-9208-b134652a4a0e","data":{"account_id":"a1"},"items":{}}', '2027-09-24 09:01:31.473024+00', '2026-11-28 09:01:31.541323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'd4dd2a54-d005-5eeb-b4ed-6868420fae71', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"d4dd2a54-d005-5eeb-b4ed-6868420fae71","correlation_id":"01a22163-6384-7126-9208-b134652a4a0e","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-28 09:01:31.541323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '1d688ebf-c9de-5613-a16c-a56ea2c4b9ae', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"1d688ebf-c9de-5613-a16c-a56ea2c4b9ae","correlation_id":"01a22163-640f-73be-9ff3-a58e84efbab1","data":{"account_id":"a2"},"items":{}}', '2027-09-24 09:01:31.539811+00', '2026-11-28 09:01:31.874323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '3e2e8bf8-4fca-51a8-b0d1-6b333f0f96d1', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"3e2e8bf8-4fca-51a8-b0d1-6b333f0f96d1","correlation_id":"01a22163-640f-73be-9ff3-a58e84efbab1","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-28 09:01:31.874323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '16b1bf88-45bb-521f-ade3-47080b3c8f36', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"16b1bf88-45bb-521f-ade3-47080b3c8f36","correlation_id":"01a22163-644b-73f7-b2d3-2bb49aa3dff5","data":{"account_id":"a4"},"items":{}}', '2027-09-24 09:01:31.606406+00', '2026-11-28 09:01:31.928323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '853c3982-cac4-5cfe-b798-e07de99dae14', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"853c3982-cac4-5cfe-b798-e07de99dae14","correlation_id":"01a22163-644b-73f7-b2d3-2bb49aa3dff5","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-28 09:01:31.928323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'e858a03f-6184-522e-af62-492b69a32e83', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"e858a03f-6184-522e-af62-492b69a32e83","correlation_id":"01a22163-6423-7007-a58b-fdd6fb752fdd","data":{"account_id":"a3"},"items":{}}', '2027-09-24 09:01:31.573387+00', '2026-11-28 09:01:32.046323+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '29b0b737-aa41-5c73-8d0e-2f30383fc78d', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"29b0b737-aa41-5c73-8d0e-2f30383fc78d","correlation_id":"01a22163-6423-7007-a58b-fdd6fb752fdd","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-28 09:01:32.046323+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-28 09:01:31.541323+00', '2026-11-28 09:01:31.541323+00', 'Opened', 'a1', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-28 09:01:31.874323+00', '2026-11-28 09:01:31.874323+00', 'Opened', 'a2', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-28 09:01:31.928323+00', '2026-11-28 09:01:31.928323+00', 'Opened', 'a4', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-28 09:01:32.046323+00', '2026-11-28 09:01:32.046323+00', 'Opened', 'a3', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-28 09:01:32.133323+00', '2026-11-28 09:01:32.133323+00', 'Opened', 'a5', 1, 0);
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a22163-6384-7126-9208-b134652a4a0e', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a22163-640f-73be-9ff3-a58e84efbab1', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a22163-644b-73f7-b2d3-2bb49aa3dff5', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a22163-6423-7007-a58b-fdd6fb752fdd', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a22163-645b-75bb-a007-7a4bc8536544', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_generations VALUES ('balances', 1, 1, NULL, true, true);
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
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 13, '853c3982-cac4-5cfe-b798-e07de99dae14', 'a4', '853c3982-cac4-5cfe-b798-e07de99dae14');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 5, '29b0b737-aa41-5c73-8d0e-2f30383fc78d', 'a3', '29b0b737-aa41-5c73-8d0e-2f30383fc78d');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 13, '853c3982-cac4-5cfe-b798-e07de99dae14', 'a4', '853c3982-cac4-5cfe-b798-e07de99dae14');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 5, '29b0b737-aa41-5c73-8d0e-2f30383fc78d', 'a3', '29b0b737-aa41-5c73-8d0e-2f30383fc78d');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 13, '853c3982-cac4-5cfe-b798-e07de99dae14', 'a4', '853c3982-cac4-5cfe-b798-e07de99dae14');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, '2793d5bb-8651-460d-b460-15088b9b2a67', '01a22163-6327-7173-bf96-8f4733784b4a', 5, '29b0b737-aa41-5c73-8d0e-2f30383fc78d', 'a3', '29b0b737-aa41-5c73-8d0e-2f30383fc78d');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a22163-6327-7173-bf96-8f4733784b4a', '\x66700f149d2772e8463517062a8f409f4518b5bb8b81ccf5c182c9a38c5f90a9', '2026-11-28 09:01:31.303292+00');
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
