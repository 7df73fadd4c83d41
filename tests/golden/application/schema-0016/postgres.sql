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
    as_of text
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
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a214d4-589a-74c6-8821-8785ada84c0f', '2026-11-25 22:29:50.42692+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a214d4-589a-74c6-8821-8785ada84c0f","correlation_id":"01a214d4-589a-74c6-8821-8785ada84c0f","recorded_at":"2026-11-25T22:29:50.426920Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 2284063021);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a214d4-5904-7762-9f18-44306c2e7dd2', '2026-11-25 22:29:50.473252+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a214d4-5904-7762-9f18-44306c2e7dd2","correlation_id":"01a214d4-5904-7762-9f18-44306c2e7dd2","recorded_at":"2026-11-25T22:29:50.473252Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 2414935165);
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a214d4-591e-7618-b57f-0947d689a908', '2026-11-25 22:29:50.508146+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a214d4-591e-7618-b57f-0947d689a908","correlation_id":"01a214d4-591e-7618-b57f-0947d689a908","recorded_at":"2026-11-25T22:29:50.508146Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 298192963);
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a214d4-5938-779e-a3ce-ac8989093c6f', '2026-11-25 22:29:50.525627+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a214d4-5938-779e-a3ce-ac8989093c6f","correlation_id":"01a214d4-5938-779e-a3ce-ac8989093c6f","recorded_at":"2026-11-25T22:29:50.525627Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 880507996);
INSERT INTO public.event_streams VALUES (5, 'a5', 'Account', 1, '01a214d4-5950-7589-98d9-388fb9e774d8', '2026-11-25 22:29:50.54875+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a214d4-5950-7589-98d9-388fb9e774d8","correlation_id":"01a214d4-5950-7589-98d9-388fb9e774d8","recorded_at":"2026-11-25T22:29:50.548750Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 253433828);
INSERT INTO public.event_streams VALUES (6, 'a1', 'Account', 2, '01a214d4-596e-7642-a3e1-fba08ebaec69', '2026-11-25 22:29:50.587821+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"01a214d4-596e-7642-a3e1-fba08ebaec69","correlation_id":"01a214d4-596e-7642-a3e1-fba08ebaec69","recorded_at":"2026-11-25T22:29:50.587821Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":100}}],"rejection":null}', 3256462557);
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, 'd200e031-46bc-5cf7-8725-4ccb95dccba5', '2026-11-25 22:29:50.603846+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"d200e031-46bc-5cf7-8725-4ccb95dccba5","correlation_id":"01a214d4-589a-74c6-8821-8785ada84c0f","recorded_at":"2026-11-25T22:29:50.603846Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":105}}],"rejection":null}', 2491955271);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a214d4-598d-754c-aaa5-5b0665c994fe', '2026-11-25 22:29:50.608621+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a214d4-598d-754c-aaa5-5b0665c994fe","correlation_id":"01a214d4-598d-754c-aaa5-5b0665c994fe","recorded_at":"2026-11-25T22:29:50.608621Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 1751418632);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a214d4-5996-7152-9dad-02bf0df61a67', '2026-11-25 22:29:50.618955+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a214d4-5996-7152-9dad-02bf0df61a67","correlation_id":"01a214d4-5996-7152-9dad-02bf0df61a67","recorded_at":"2026-11-25T22:29:50.618955Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 2290669249);
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a214d4-59ab-7057-8c9d-765de9d805dc', '2026-11-25 22:29:50.639418+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a214d4-59ab-7057-8c9d-765de9d805dc","correlation_id":"01a214d4-59ab-7057-8c9d-765de9d805dc","recorded_at":"2026-11-25T22:29:50.639418Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 1433796263);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a214d4-59b6-7377-9b94-3a61a7436c1f', '2026-11-25 22:29:50.647817+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a214d4-59b6-7377-9b94-3a61a7436c1f","correlation_id":"01a214d4-59b6-7377-9b94-3a61a7436c1f","recorded_at":"2026-11-25T22:29:50.647817Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 4268116138);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a214d4-59bf-71a9-90b9-826efd9dd355', '2026-11-25 22:29:50.660058+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a214d4-59bf-71a9-90b9-826efd9dd355","correlation_id":"01a214d4-59bf-71a9-90b9-826efd9dd355","recorded_at":"2026-11-25T22:29:50.660058Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 2450787116);
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a214d4-59c8-7602-97a9-e5b16d0455f4', '2026-11-25 22:29:50.670941+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a214d4-59c8-7602-97a9-e5b16d0455f4","correlation_id":"01a214d4-59c8-7602-97a9-e5b16d0455f4","recorded_at":"2026-11-25T22:29:50.670941Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 2137230421);
INSERT INTO public.event_streams VALUES (14, 'a2', 'Account', 2, 'd6a2fba7-0f84-5989-ad35-8db6965e2e60', '2026-11-25 22:29:50.682333+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"d6a2fba7-0f84-5989-ad35-8db6965e2e60","correlation_id":"01a214d4-5904-7762-9f18-44306c2e7dd2","recorded_at":"2026-11-25T22:29:50.682333Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 2729423521);
INSERT INTO public.event_streams VALUES (15, 'a4', 'Account', 2, '01a214d4-59da-7636-9b4d-f0649a1ddb92', '2026-11-25 22:29:50.683599+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a214d4-59da-7636-9b4d-f0649a1ddb92","correlation_id":"01a214d4-59da-7636-9b4d-f0649a1ddb92","recorded_at":"2026-11-25T22:29:50.683599Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3869980152);
INSERT INTO public.event_streams VALUES (16, 'a5', 'Account', 2, '01a214d4-59ec-74a8-9769-5d5421525569', '2026-11-25 22:29:50.702903+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a214d4-59ec-74a8-9769-5d5421525569","correlation_id":"01a214d4-59ec-74a8-9769-5d5421525569","recorded_at":"2026-11-25T22:29:50.702903Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 955092443);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, 'd422f35d-9183-567e-903f-dc414c7deb9f', '2026-11-25 22:29:50.743117+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"d422f35d-9183-567e-903f-dc414c7deb9f","correlation_id":"01a214d4-5938-779e-a3ce-ac8989093c6f","recorded_at":"2026-11-25T22:29:50.743117Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 3524014897);
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, '41b918b4-9ae6-509e-b6c1-a83c7231f4a9', '2026-11-25 22:29:50.839946+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"41b918b4-9ae6-509e-b6c1-a83c7231f4a9","correlation_id":"01a214d4-591e-7618-b57f-0947d689a908","recorded_at":"2026-11-25T22:29:50.839946Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 2557397766);
INSERT INTO public.headrace_schema VALUES ('0016');
INSERT INTO public.parked VALUES (3, 'commands:', 0, 'a2', '01a214d4-59fa-70a3-afa8-5e5c84be7419', 'Deposit', 'holding', '2026-11-25 22:29:50.721468+00', 1, 'ValueError', 'the command handler is broken', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92462373262393136642d383663632d343337652d393239312d666636373862666433353438b17265706c792d636f7272656c6174696f6ed92430316132313464342d353966612d373061332d616661382d356535646534623939666666a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132313464342d353966612d373061332d616661382d356535633834626537343139222c22636f7272656c6174696f6e5f6964223a2230316132313464342d353966612d373061332d616661382d356535633834626537343139222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (4, 'commands:', 0, 'a2', '01a214d4-5a18-7653-af12-d98b7fcd414b', 'Deposit', 'held', '2026-11-25 22:29:50.767581+00', 1, 'Held', 'command 01a214d4-59fa-70a3-afa8-5e5c84be7419 of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id', '', 1, NULL, NULL, NULL, NULL, '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92462373262393136642d383663632d343337652d393239312d666636373862666433353438b17265706c792d636f7272656c6174696f6ed92430316132313464342d356131382d373635332d616631322d643938633831616633343462a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132313464342d356131382d373635332d616631322d643938623766636434313462222c22636f7272656c6174696f6e5f6964223a2230316132313464342d356131382d373635332d616631322d643938623766636434313462222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.parked VALUES (2, 'balances', 1, 'a3', '', '', 'parked', '2026-11-25 22:29:50.66111+00', 1, 'ProjectionError', 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', 'Traceback (most recent call last):
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
INSERT INTO public.parked VALUES (5, 'instances:greetings', 0, 'a5', '', '', 'parked', '2026-11-25 22:29:50.85028+00', 1, 'ValueError', 'Opened of a5: ValueError(''the process is broken'')', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken', 1, NULL, 'ledger.events', 2, 1, NULL);
INSERT INTO public.parked VALUES (1, 'handlers:events', 0, 'a4', '', '', 'parked', '2026-11-25 22:29:50.558481+00', 1, 'EventHandlerError', 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', 'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 215, in _call
    await self.reader.attempt(call, "handle an event", final=final)
  File "framework/headrace/subscriptions/reader.py", line 251, in attempt
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
INSERT INTO public.process_commands VALUES ('greetings', 'ee82a6ca-5a35-5a4c-8ac2-c25ad13419da', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"ee82a6ca-5a35-5a4c-8ac2-c25ad13419da","correlation_id":"01a214d4-589a-74c6-8821-8785ada84c0f","data":{"account_id":"a1"},"items":{}}', '2027-09-21 22:29:50.42692+00', '2026-11-25 22:29:50.48128+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'd200e031-46bc-5cf7-8725-4ccb95dccba5', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"d200e031-46bc-5cf7-8725-4ccb95dccba5","correlation_id":"01a214d4-589a-74c6-8821-8785ada84c0f","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-25 22:29:50.48128+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'bb81a08d-7332-53a3-b703-5f2adced0f6e', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"bb81a08d-7332-53a3-b703-5f2adced0f6e","correlation_id":"01a214d4-5904-7762-9f18-44306c2e7dd2","data":{"account_id":"a2"},"items":{}}', '2027-09-21 22:29:50.473252+00', '2026-11-25 22:29:50.65128+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'd6a2fba7-0f84-5989-ad35-8db6965e2e60', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"d6a2fba7-0f84-5989-ad35-8db6965e2e60","correlation_id":"01a214d4-5904-7762-9f18-44306c2e7dd2","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-25 22:29:50.65128+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '2c4accaf-6f30-5d55-9ed6-13636588c493', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"2c4accaf-6f30-5d55-9ed6-13636588c493","correlation_id":"01a214d4-5938-779e-a3ce-ac8989093c6f","data":{"account_id":"a4"},"items":{}}', '2027-09-21 22:29:50.525627+00', '2026-11-25 22:29:50.69528+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'd422f35d-9183-567e-903f-dc414c7deb9f', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"d422f35d-9183-567e-903f-dc414c7deb9f","correlation_id":"01a214d4-5938-779e-a3ce-ac8989093c6f","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-25 22:29:50.69528+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '67a83353-1cd9-521c-b3ac-61ed1d41f38b', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"67a83353-1cd9-521c-b3ac-61ed1d41f38b","correlation_id":"01a214d4-591e-7618-b57f-0947d689a908","data":{"account_id":"a3"},"items":{}}', '2027-09-21 22:29:50.508146+00', '2026-11-25 22:29:50.81528+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '41b918b4-9ae6-509e-b6c1-a83c7231f4a9', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"41b918b4-9ae6-509e-b6c1-a83c7231f4a9","correlation_id":"01a214d4-591e-7618-b57f-0947d689a908","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-25 22:29:50.81528+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-25 22:29:50.48128+00', '2026-11-25 22:29:50.48128+00', 'Opened', 'a1', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-25 22:29:50.65128+00', '2026-11-25 22:29:50.65128+00', 'Opened', 'a2', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-25 22:29:50.69528+00', '2026-11-25 22:29:50.69528+00', 'Opened', 'a4', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-25 22:29:50.81528+00', '2026-11-25 22:29:50.81528+00', 'Opened', 'a3', 1, 2);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-25 22:29:50.85028+00', '2026-11-25 22:29:50.85028+00', 'Opened', 'a5', 1, 0);
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a214d4-589a-74c6-8821-8785ada84c0f', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a214d4-5904-7762-9f18-44306c2e7dd2', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a214d4-5938-779e-a3ce-ac8989093c6f', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a214d4-591e-7618-b57f-0947d689a908', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a214d4-5950-7589-98d9-388fb9e774d8', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_generations VALUES ('balances', 1, 1, NULL);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 1, 13);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 2, 5);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a4', 3);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a3', 3);
INSERT INTO public.projections VALUES ('balances', 1, NULL, '6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19', NULL, NULL, NULL, NULL);
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 13, 'd422f35d-9183-567e-903f-dc414c7deb9f', 'a4', 'd422f35d-9183-567e-903f-dc414c7deb9f');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 5, '41b918b4-9ae6-509e-b6c1-a83c7231f4a9', 'a3', '41b918b4-9ae6-509e-b6c1-a83c7231f4a9');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 13, 'd422f35d-9183-567e-903f-dc414c7deb9f', 'a4', 'd422f35d-9183-567e-903f-dc414c7deb9f');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 5, '41b918b4-9ae6-509e-b6c1-a83c7231f4a9', 'a3', '41b918b4-9ae6-509e-b6c1-a83c7231f4a9');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 7, '01a214d4-5996-7152-9dad-02bf0df61a67', 'a1', '01a214d4-5996-7152-9dad-02bf0df61a67');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, '0e280171-c51b-408d-8348-9ca84b5e09c0', '01a214d4-586f-761f-83ca-a732e51fdc07', 2, '01a214d4-5950-7589-98d9-388fb9e774d8', 'a5', '01a214d4-5950-7589-98d9-388fb9e774d8');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a214d4-586f-761f-83ca-a732e51fdc07', '\xdd1ce26c22274f2e37ed7351cef0857508d1800cd14d05e5514373bbc55d5158', '2026-11-25 22:29:50.319347+00');
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
