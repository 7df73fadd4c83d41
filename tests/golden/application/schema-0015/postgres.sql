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
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a20e06-fad8-741e-bc1b-996787c0e678', '2026-11-24 14:47:48.210184+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20e06-fad8-741e-bc1b-996787c0e678","correlation_id":"01a20e06-fad8-741e-bc1b-996787c0e678","recorded_at":"2026-11-24T14:47:48.210184Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 2291711989);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a20e06-fb10-73df-bcbb-836bb1495500', '2026-11-24 14:47:48.246022+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20e06-fb10-73df-bcbb-836bb1495500","correlation_id":"01a20e06-fb10-73df-bcbb-836bb1495500","recorded_at":"2026-11-24T14:47:48.246022Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 2854780625);
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a20e06-fb31-762c-8c3a-008c4bdbe296', '2026-11-24 14:47:48.31046+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20e06-fb31-762c-8c3a-008c4bdbe296","correlation_id":"01a20e06-fb31-762c-8c3a-008c4bdbe296","recorded_at":"2026-11-24T14:47:48.310460Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 1501046565);
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a20e06-fb72-7732-82d9-0bd26b8d1d73', '2026-11-24 14:47:48.346182+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20e06-fb72-7732-82d9-0bd26b8d1d73","correlation_id":"01a20e06-fb72-7732-82d9-0bd26b8d1d73","recorded_at":"2026-11-24T14:47:48.346182Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 2583960853);
INSERT INTO public.event_streams VALUES (5, 'a1', 'Account', 2, '72814997-07a8-5446-aaf4-eaed32999869', '2026-11-24 14:47:48.381382+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"72814997-07a8-5446-aaf4-eaed32999869","correlation_id":"01a20e06-fad8-741e-bc1b-996787c0e678","recorded_at":"2026-11-24T14:47:48.381382Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 1726294070);
INSERT INTO public.event_streams VALUES (6, 'a5', 'Account', 1, '01a20e06-fbbb-776c-b154-3a8f3269f6cf', '2026-11-24 14:47:48.427247+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20e06-fbbb-776c-b154-3a8f3269f6cf","correlation_id":"01a20e06-fbbb-776c-b154-3a8f3269f6cf","recorded_at":"2026-11-24T14:47:48.427247Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 3444095300);
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, '01a20e06-fbe0-77c1-b066-0ebb79ed4d71', '2026-11-24 14:47:48.454617+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20e06-fbe0-77c1-b066-0ebb79ed4d71","correlation_id":"01a20e06-fbe0-77c1-b066-0ebb79ed4d71","recorded_at":"2026-11-24T14:47:48.454617Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}', 3242225878);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a20e06-fbef-7696-af09-5c39ad5e0262', '2026-11-24 14:47:48.46471+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20e06-fbef-7696-af09-5c39ad5e0262","correlation_id":"01a20e06-fbef-7696-af09-5c39ad5e0262","recorded_at":"2026-11-24T14:47:48.464710Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 4141020768);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a20e06-fbf6-7306-be79-2f3a938ce9ac', '2026-11-24 14:47:48.47456+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20e06-fbf6-7306-be79-2f3a938ce9ac","correlation_id":"01a20e06-fbf6-7306-be79-2f3a938ce9ac","recorded_at":"2026-11-24T14:47:48.474560Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 3375605693);
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a20e06-fc03-7664-a08d-6b20973f5bfa', '2026-11-24 14:47:48.486655+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20e06-fc03-7664-a08d-6b20973f5bfa","correlation_id":"01a20e06-fc03-7664-a08d-6b20973f5bfa","recorded_at":"2026-11-24T14:47:48.486655Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 1162022178);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a20e06-fc12-737f-ad58-774a5e38301e', '2026-11-24 14:47:48.502564+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20e06-fc12-737f-ad58-774a5e38301e","correlation_id":"01a20e06-fc12-737f-ad58-774a5e38301e","recorded_at":"2026-11-24T14:47:48.502564Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 1777993529);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a20e06-fc1e-7513-8aa5-3b29ccb99655', '2026-11-24 14:47:48.515088+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20e06-fc1e-7513-8aa5-3b29ccb99655","correlation_id":"01a20e06-fc1e-7513-8aa5-3b29ccb99655","recorded_at":"2026-11-24T14:47:48.515088Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 742454859);
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a20e06-fc2c-718e-9446-d078394f2fc5', '2026-11-24 14:47:48.527429+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a20e06-fc2c-718e-9446-d078394f2fc5","correlation_id":"01a20e06-fc2c-718e-9446-d078394f2fc5","recorded_at":"2026-11-24T14:47:48.527429Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 148979955);
INSERT INTO public.event_streams VALUES (14, 'a2', 'Account', 2, 'd4ac1388-07aa-5052-bfa0-60a45fd27273', '2026-11-24 14:47:48.542749+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"d4ac1388-07aa-5052-bfa0-60a45fd27273","correlation_id":"01a20e06-fb10-73df-bcbb-836bb1495500","recorded_at":"2026-11-24T14:47:48.542749Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 255939304);
INSERT INTO public.event_streams VALUES (15, 'a4', 'Account', 2, '01a20e06-fc3e-765f-9c6f-05647508fb86', '2026-11-24 14:47:48.543775+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a20e06-fc3e-765f-9c6f-05647508fb86","correlation_id":"01a20e06-fc3e-765f-9c6f-05647508fb86","recorded_at":"2026-11-24T14:47:48.543775Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1894683166);
INSERT INTO public.event_streams VALUES (16, 'a5', 'Account', 2, '01a20e06-fc4a-7229-9669-261627382993', '2026-11-24 14:47:48.557831+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20e06-fc4a-7229-9669-261627382993","correlation_id":"01a20e06-fc4a-7229-9669-261627382993","recorded_at":"2026-11-24T14:47:48.557831Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1967473459);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, 'cfc181a6-0619-587d-b66d-1213effb7606', '2026-11-24 14:47:48.645487+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"cfc181a6-0619-587d-b66d-1213effb7606","correlation_id":"01a20e06-fb72-7732-82d9-0bd26b8d1d73","recorded_at":"2026-11-24T14:47:48.645487Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 1090062355);
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, '82e98526-660a-573d-ae45-db1e10b9e6b3', '2026-11-24 14:47:48.729734+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"82e98526-660a-573d-ae45-db1e10b9e6b3","correlation_id":"01a20e06-fb31-762c-8c3a-008c4bdbe296","recorded_at":"2026-11-24T14:47:48.729734Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 1843366592);
INSERT INTO public.headrace_schema VALUES ('0015');
INSERT INTO public.parked VALUES (2, 'commands:', 0, 'a2', '01a20e06-fc56-73d2-bcce-5acc9702ce4d', 'Deposit', 'holding', '2026-11-24 14:47:48.575314+00', 1, 'ValueError', 'the command handler is broken', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92466633261306663302d356630382d343831392d386361362d373265643935663030626333b17265706c792d636f7272656c6174696f6ed92430316132306530362d666335362d373364322d626363652d356163643135616165323031a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306530362d666335362d373364322d626363652d356163633937303263653464222c22636f7272656c6174696f6e5f6964223a2230316132306530362d666335362d373364322d626363652d356163633937303263653464222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (4, 'balances', 1, 'a3', '', '', 'parked', '2026-11-24 14:47:48.585317+00', 1, 'ProjectionError', 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 'Traceback (most recent call last):
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
  File "framework/headrace/projections/batch_transaction.py", line 230, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 304, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 3, NULL, 'ledger.events', 2, 0, NULL);
INSERT INTO public.parked VALUES (3, 'commands:', 0, 'a2', '01a20e06-fc6a-7121-ba65-6f317d4e870c', 'Deposit', 'held', '2026-11-24 14:47:48.594331+00', 1, 'Held', 'command 01a20e06-fc56-73d2-bcce-5acc9702ce4d of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id', '', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92466633261306663302d356630382d343831392d386361362d373265643935663030626333b17265706c792d636f7272656c6174696f6ed92430316132306530362d666336612d373132312d626136352d366633323338303561313734a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306530362d666336612d373132312d626136352d366633313764346538373063222c22636f7272656c6174696f6e5f6964223a2230316132306530362d666336612d373132312d626136352d366633313764346538373063222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (1, 'handlers:events', 0, 'a4', '', '', 'parked', '2026-11-24 14:47:48.425906+00', 1, 'EventHandlerError', 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 216, in _call
    await self.reader.attempt(call, "handle an event", final=final)
  File "framework/headrace/subscriptions/reader.py", line 250, in attempt
    result = await self._backoff.persist(
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/_runtime/backoff.py", line 79, in persist
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
  File "framework/headrace/handlers/runner.py", line 148, in react
    await self._handle(message, standing)
  File "framework/headrace/handlers/runner.py", line 180, in _handle
    await call_all(self._handlers, stream, self._call)
  File "framework/headrace/handlers/call.py", line 47, in call_all
    raise EventHandlerError(
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 3, NULL, 'ledger.events', 1, 2, NULL);
INSERT INTO public.parked VALUES (5, 'instances:greetings', 0, 'a5', '', '', 'parked', '2026-11-24 14:47:48.774288+00', 1, 'ValueError', 'Opened of a5: ValueError(''the process is broken'')', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken', 1, NULL, 'ledger.events', 2, 1, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'deef2c0d-9683-5ab6-a0bb-59aea0c1c5ff', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"deef2c0d-9683-5ab6-a0bb-59aea0c1c5ff","correlation_id":"01a20e06-fad8-741e-bc1b-996787c0e678","data":{"account_id":"a1"},"items":{}}', '2027-09-20 14:47:48.210184+00', '2026-11-24 14:47:48.246288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '72814997-07a8-5446-aaf4-eaed32999869', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"72814997-07a8-5446-aaf4-eaed32999869","correlation_id":"01a20e06-fad8-741e-bc1b-996787c0e678","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-24 14:47:48.246288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '40b1f3f8-4fbf-575d-9d56-d891407e8916', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"40b1f3f8-4fbf-575d-9d56-d891407e8916","correlation_id":"01a20e06-fb10-73df-bcbb-836bb1495500","data":{"account_id":"a2"},"items":{}}', '2027-09-20 14:47:48.246022+00', '2026-11-24 14:47:48.474288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'd4ac1388-07aa-5052-bfa0-60a45fd27273', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"d4ac1388-07aa-5052-bfa0-60a45fd27273","correlation_id":"01a20e06-fb10-73df-bcbb-836bb1495500","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-24 14:47:48.474288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'a3ee1da6-f321-5022-a425-b428de4efe4b', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"a3ee1da6-f321-5022-a425-b428de4efe4b","correlation_id":"01a20e06-fb72-7732-82d9-0bd26b8d1d73","data":{"account_id":"a4"},"items":{}}', '2027-09-20 14:47:48.346182+00', '2026-11-24 14:47:48.557288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'cfc181a6-0619-587d-b66d-1213effb7606', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"cfc181a6-0619-587d-b66d-1213effb7606","correlation_id":"01a20e06-fb72-7732-82d9-0bd26b8d1d73","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-24 14:47:48.557288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'caa1ec65-9b45-5444-b748-2f78d5895ea7', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"caa1ec65-9b45-5444-b748-2f78d5895ea7","correlation_id":"01a20e06-fb31-762c-8c3a-008c4bdbe296","data":{"account_id":"a3"},"items":{}}', '2027-09-20 14:47:48.31046+00', '2026-11-24 14:47:48.696288+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '82e98526-660a-573d-ae45-db1e10b9e6b3', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"82e98526-660a-573d-ae45-db1e10b9e6b3","correlation_id":"01a20e06-fb31-762c-8c3a-008c4bdbe296","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-24 14:47:48.696288+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-24 14:47:48.246288+00', '2026-11-24 14:47:48.246288+00', 'Opened', 'a1', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-24 14:47:48.474288+00', '2026-11-24 14:47:48.474288+00', 'Opened', 'a2', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-24 14:47:48.557288+00', '2026-11-24 14:47:48.557288+00', 'Opened', 'a4', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-24 14:47:48.696288+00', '2026-11-24 14:47:48.696288+00', 'Opened', 'a3', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-24 14:47:48.774288+00', '2026-11-24 14:47:48.774288+00', 'Opened', 'a5', 1, 0);
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a20e06-fad8-741e-bc1b-996787c0e678', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a20e06-fb10-73df-bcbb-836bb1495500', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a20e06-fb72-7732-82d9-0bd26b8d1d73', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a20e06-fb31-762c-8c3a-008c4bdbe296', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a20e06-fbbb-776c-b154-3a8f3269f6cf', 'waits');
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
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 13, 'cfc181a6-0619-587d-b66d-1213effb7606', 'a4', 'cfc181a6-0619-587d-b66d-1213effb7606');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 5, '82e98526-660a-573d-ae45-db1e10b9e6b3', 'a3', '82e98526-660a-573d-ae45-db1e10b9e6b3');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 13, 'cfc181a6-0619-587d-b66d-1213effb7606', 'a4', 'cfc181a6-0619-587d-b66d-1213effb7606');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 5, '82e98526-660a-573d-ae45-db1e10b9e6b3', 'a3', '82e98526-660a-573d-ae45-db1e10b9e6b3');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 13, 'cfc181a6-0619-587d-b66d-1213effb7606', 'a4', 'cfc181a6-0619-587d-b66d-1213effb7606');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, '11a38feb-b541-4c32-8dcf-068f4f36afa8', '01a20e06-faba-73ed-8063-07c604695433', 5, '82e98526-660a-573d-ae45-db1e10b9e6b3', 'a3', '82e98526-660a-573d-ae45-db1e10b9e6b3');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a20e06-faba-73ed-8063-07c604695433', '\x8866c5857a6260e9f71a2ef76345cfad02171378f969b87febcbe8e632c2c6bf', '2026-11-24 14:47:48.154192+00');
SELECT pg_catalog.setval('public.event_streams_position_seq', 18, true);
SELECT pg_catalog.setval('public.parked_number_seq', 5, true);
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
