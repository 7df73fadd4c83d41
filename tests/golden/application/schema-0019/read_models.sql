BEGIN TRANSACTION;
CREATE TABLE balances__1 (
	"account_id" VARCHAR(255) NOT NULL, 
	"balance" BIGINT NOT NULL, 
	PRIMARY KEY ("account_id")
);
INSERT INTO "balances__1" VALUES('a1',505);
INSERT INTO "balances__1" VALUES('a2',5);
INSERT INTO "balances__1" VALUES('a4',12);
INSERT INTO "balances__1" VALUES('a5',7);
CREATE TABLE event_streams (
	position INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	aggregate_id VARCHAR(255) NOT NULL, 
	aggregate_type VARCHAR(127) NOT NULL, 
	version BIGINT, 
	command_id VARCHAR(255) NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	body TEXT NOT NULL, checksum BIGINT, 
	CONSTRAINT uq_event_streams_version UNIQUE (aggregate_id, version), 
	CONSTRAINT uq_event_streams_command UNIQUE (aggregate_id, command_id)
);
CREATE TABLE headrace_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "headrace_schema" VALUES('0019');
CREATE TABLE parked (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	name VARCHAR(127) NOT NULL, 
	generation INTEGER NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	command_id VARCHAR(255) NOT NULL, 
	command TEXT NOT NULL, 
	state VARCHAR(7) NOT NULL, 
	parked_at DATETIME NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	sentence TEXT NOT NULL, 
	traceback TEXT NOT NULL, 
	held BIGINT NOT NULL, 
	version BIGINT, 
	topic VARCHAR(127), 
	queue_id INTEGER, 
	message_offset BIGINT, 
	message BLOB, 
	CONSTRAINT uq_parked_place UNIQUE (name, generation, aggregate_id, command_id)
);
INSERT INTO "parked" VALUES(1,'balances',1,'a3','','','parked','2026-11-29 00:44:01.462313',1,'ProjectionError','projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken','Traceback (most recent call last):
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
  File "lib/python3.11/concurrent/futures/thread.py", line 58, in run
    result = self.fn(*self.args, **self.kwargs)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/tables/read_models.py", line 483, in _run
    return work(connection)
           ^^^^^^^^^^^^^^^^
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
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken',3,NULL,'ledger.events',2,0,NULL);
INSERT INTO "parked" VALUES(2,'handlers:events',0,'a4','','','parked','2026-11-29 00:44:01.520352',1,'EventHandlerError','write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')','Traceback (most recent call last):
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
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')',3,NULL,'ledger.events',1,3,NULL);
INSERT INTO "parked" VALUES(3,'instances:greetings',0,'a5','','','parked','2026-11-29 00:44:01.883578',1,'ValueError','Opened of a5: ValueError(''the process is broken'')','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken',1,NULL,'ledger.events',2,1,NULL);
CREATE TABLE process_commands (
	process VARCHAR(127) NOT NULL, 
	command_id VARCHAR(36) NOT NULL, 
	instance VARCHAR(255) NOT NULL, 
	number BIGINT NOT NULL, 
	name VARCHAR(127) NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	body TEXT NOT NULL, 
	due DATETIME, 
	made_at DATETIME NOT NULL, 
	sent BOOLEAN NOT NULL, 
	refused TEXT, 
	PRIMARY KEY (process, command_id)
);
INSERT INTO "process_commands" VALUES('greetings','bb514e81-0f9e-559f-9fe2-038c8585f3f4','a1',1,'Deposit','a1','{"name":"Deposit","version":1,"command_id":"bb514e81-0f9e-559f-9fe2-038c8585f3f4","correlation_id":"01a224c2-415c-7673-8130-a44e88134869","data":{"account_id":"a1","amount":5},"items":{}}',NULL,'2026-11-29 00:44:00.879578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','622e8f89-240e-5fe9-b9d8-d28254e4ce72','a1',2,'Close','a1','{"name":"Close","version":1,"command_id":"622e8f89-240e-5fe9-b9d8-d28254e4ce72","correlation_id":"01a224c2-415c-7673-8130-a44e88134869","data":{"account_id":"a1"},"items":{}}','2027-09-25 00:44:00.650342','2026-11-29 00:44:00.879578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','0c78f2da-71e4-5d9b-b55d-cc0b87b0faf2','a2',1,'Deposit','a2','{"name":"Deposit","version":1,"command_id":"0c78f2da-71e4-5d9b-b55d-cc0b87b0faf2","correlation_id":"01a224c2-43ae-719f-b30e-fbd54645fe3f","data":{"account_id":"a2","amount":5},"items":{}}',NULL,'2026-11-29 00:44:01.302578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','a0d5dfa9-0b9b-55b2-865c-7140f284ac09','a2',2,'Close','a2','{"name":"Close","version":1,"command_id":"a0d5dfa9-0b9b-55b2-865c-7140f284ac09","correlation_id":"01a224c2-43ae-719f-b30e-fbd54645fe3f","data":{"account_id":"a2"},"items":{}}','2027-09-25 00:44:00.920743','2026-11-29 00:44:01.302578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','a9c3ad36-c9d0-54bf-a99f-a0011e52977d','a4',1,'Deposit','a4','{"name":"Deposit","version":1,"command_id":"a9c3ad36-c9d0-54bf-a99f-a0011e52977d","correlation_id":"01a224c2-45ac-7429-95c0-1526b5e9d3a2","data":{"account_id":"a4","amount":5},"items":{}}',NULL,'2026-11-29 00:44:01.556578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','38f30de2-ade8-50de-8497-c699fe181219','a4',2,'Close','a4','{"name":"Close","version":1,"command_id":"38f30de2-ade8-50de-8497-c699fe181219","correlation_id":"01a224c2-45ac-7429-95c0-1526b5e9d3a2","data":{"account_id":"a4"},"items":{}}','2027-09-25 00:44:01.483577','2026-11-29 00:44:01.556578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','644bf160-fd59-5d99-9d1a-86de5ebed7cc','a3',1,'Deposit','a3','{"name":"Deposit","version":1,"command_id":"644bf160-fd59-5d99-9d1a-86de5ebed7cc","correlation_id":"01a224c2-4440-76aa-a62a-1bba8b8acb22","data":{"account_id":"a3","amount":5},"items":{}}',NULL,'2026-11-29 00:44:01.757578',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','d91824db-74ed-5010-8e5e-13b98aa8ba4c','a3',2,'Close','a3','{"name":"Close","version":1,"command_id":"d91824db-74ed-5010-8e5e-13b98aa8ba4c","correlation_id":"01a224c2-4440-76aa-a62a-1bba8b8acb22","data":{"account_id":"a3"},"items":{}}','2027-09-25 00:44:01.291621','2026-11-29 00:44:01.757578',1,NULL);
CREATE TABLE process_instances (
	process VARCHAR(127) NOT NULL, 
	instance VARCHAR(255) NOT NULL, 
	state TEXT, 
	state_version INTEGER NOT NULL, 
	undo TEXT NOT NULL, 
	ended BOOLEAN NOT NULL, 
	began_at DATETIME NOT NULL, 
	changed_at DATETIME NOT NULL, 
	last_event VARCHAR(127) NOT NULL, 
	last_aggregate_id VARCHAR(255) NOT NULL, 
	seen BIGINT NOT NULL, 
	sent BIGINT NOT NULL, 
	PRIMARY KEY (process, instance)
);
INSERT INTO "process_instances" VALUES('greetings','a1','{"owner":"ann"}',1,'[]',0,'2026-11-29 00:44:00.879578','2026-11-29 00:44:00.879578','Opened','a1',1,2);
INSERT INTO "process_instances" VALUES('greetings','a2','{"owner":"bob"}',1,'[]',0,'2026-11-29 00:44:01.302578','2026-11-29 00:44:01.302578','Opened','a2',1,2);
INSERT INTO "process_instances" VALUES('greetings','a4','{"owner":"handler"}',1,'[]',0,'2026-11-29 00:44:01.556578','2026-11-29 00:44:01.556578','Opened','a4',1,2);
INSERT INTO "process_instances" VALUES('greetings','a3','{"owner":"fold"}',1,'[]',0,'2026-11-29 00:44:01.757578','2026-11-29 00:44:01.757578','Opened','a3',1,2);
INSERT INTO "process_instances" VALUES('greetings','a5',NULL,1,'[]',0,'2026-11-29 00:44:01.883578','2026-11-29 00:44:01.883578','Opened','a5',1,0);
CREATE TABLE process_journal (
	process VARCHAR(127) NOT NULL, 
	instance VARCHAR(255) NOT NULL, 
	number BIGINT NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	command_id VARCHAR(255) NOT NULL, 
	outcome VARCHAR(8) NOT NULL, 
	PRIMARY KEY (process, instance, number), 
	CONSTRAINT uq_process_journal_cause UNIQUE (process, instance, aggregate_id, command_id)
);
INSERT INTO "process_journal" VALUES('greetings','a1',1,'a1','01a224c2-415c-7673-8130-a44e88134869','done');
INSERT INTO "process_journal" VALUES('greetings','a2',1,'a2','01a224c2-43ae-719f-b30e-fbd54645fe3f','done');
INSERT INTO "process_journal" VALUES('greetings','a4',1,'a4','01a224c2-45ac-7429-95c0-1526b5e9d3a2','done');
INSERT INTO "process_journal" VALUES('greetings','a3',1,'a3','01a224c2-4440-76aa-a62a-1bba8b8acb22','done');
INSERT INTO "process_journal" VALUES('greetings','a5',1,'a5','01a224c2-4668-72dd-8857-dce2fec630a4','waits');
CREATE TABLE process_versions (
	process VARCHAR(127) NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (process, aggregate_id)
);
INSERT INTO "process_versions" VALUES('greetings','a1',7);
INSERT INTO "process_versions" VALUES('greetings','a2',2);
INSERT INTO "process_versions" VALUES('greetings','a4',3);
INSERT INTO "process_versions" VALUES('greetings','a3',3);
INSERT INTO "process_versions" VALUES('greetings','a5',2);
CREATE TABLE processes (
	name VARCHAR(127) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "processes" VALUES('greetings');
CREATE TABLE projection_generations (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	as_of TEXT, followed BOOLEAN DEFAULT 0 NOT NULL, by_command BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (name, generation)
);
INSERT INTO "projection_generations" VALUES('balances',1,1,NULL,1,1);
CREATE TABLE projection_offsets (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	topic VARCHAR(127) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (name, generation, topic, queue_id)
);
INSERT INTO "projection_offsets" VALUES('balances',1,'ledger.events',1,13);
INSERT INTO "projection_offsets" VALUES('balances',1,'ledger.events',2,5);
CREATE TABLE projection_versions (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (name, generation, aggregate_id)
);
INSERT INTO "projection_versions" VALUES('balances',1,'a1',7);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a1',7);
INSERT INTO "projection_versions" VALUES('balances',1,'a2',2);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a2',2);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a3',3);
INSERT INTO "projection_versions" VALUES('balances',1,'a4',3);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a5',2);
INSERT INTO "projection_versions" VALUES('balances',1,'a5',2);
CREATE TABLE projections (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	previous_generation INTEGER, 
	fingerprint VARCHAR(64) NOT NULL, 
	rebuild_generation INTEGER, 
	rebuild_owner VARCHAR(64), 
	rebuild_started_at DATETIME, paused_at DATETIME, 
	PRIMARY KEY (name)
);
INSERT INTO "projections" VALUES('balances',1,NULL,'6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19',NULL,NULL,NULL,NULL);
CREATE TABLE reader_marks (
	name VARCHAR(150) NOT NULL, 
	generation INTEGER NOT NULL, 
	queue_id INTEGER NOT NULL, 
	topic_identity VARCHAR(36) NOT NULL, 
	store_identity VARCHAR(36) NOT NULL, 
	next_offset BIGINT NOT NULL, 
	message_id VARCHAR(255) NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	command_id VARCHAR(255) NOT NULL, 
	PRIMARY KEY (name, generation, queue_id)
);
INSERT INTO "reader_marks" VALUES('balances',1,-1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',0,'','','');
INSERT INTO "reader_marks" VALUES('handlers:events',0,-1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',0,'','','');
INSERT INTO "reader_marks" VALUES('process:greetings',0,-1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,-1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,0,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',0,'','','');
INSERT INTO "reader_marks" VALUES('balances',1,1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',13,'01a224c2-47dc-754b-86ae-4f8fcd872284','a4','01a224c2-47dc-754b-86ae-4f8fcd872284');
INSERT INTO "reader_marks" VALUES('balances',1,2,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',5,'01a224c2-4879-724e-bae2-64e1227f535a','a5','01a224c2-4879-724e-bae2-64e1227f535a');
INSERT INTO "reader_marks" VALUES('handlers:events',0,1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',13,'01a224c2-47dc-754b-86ae-4f8fcd872284','a4','01a224c2-47dc-754b-86ae-4f8fcd872284');
INSERT INTO "reader_marks" VALUES('handlers:events',0,2,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',5,'01a224c2-4879-724e-bae2-64e1227f535a','a5','01a224c2-4879-724e-bae2-64e1227f535a');
INSERT INTO "reader_marks" VALUES('process:greetings',0,1,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',13,'01a224c2-47dc-754b-86ae-4f8fcd872284','a4','01a224c2-47dc-754b-86ae-4f8fcd872284');
INSERT INTO "reader_marks" VALUES('process:greetings',0,2,'e7180d60-5eac-4254-bf9b-9316a6995beb','01a224c2-3c93-7563-92eb-fdf7c69f1d25',5,'01a224c2-4879-724e-bae2-64e1227f535a','a5','01a224c2-4879-724e-bae2-64e1227f535a');
CREATE TABLE scheduled_messages (
	number INTEGER NOT NULL, 
	due DATETIME NOT NULL, 
	topic VARCHAR(249) NOT NULL, 
	message BLOB NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE snapshots (
	aggregate_id VARCHAR(255) NOT NULL, 
	aggregate_type VARCHAR(127) NOT NULL, 
	version BIGINT NOT NULL, 
	state_version INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (aggregate_id)
);
CREATE TABLE store_identity (
	number INTEGER NOT NULL, 
	store_id VARCHAR(36) NOT NULL, 
	seal_key BLOB NOT NULL, 
	made_at DATETIME NOT NULL, 
	PRIMARY KEY (number)
);
CREATE TABLE subject_keys (
	subject VARCHAR(255) NOT NULL, 
	"key" BLOB, 
	wrapped BOOLEAN NOT NULL, 
	made_at DATETIME NOT NULL, 
	forgotten_at DATETIME, 
	PRIMARY KEY (subject)
);
CREATE TABLE topic_damages (
	topic VARCHAR(150) NOT NULL, 
	topic_identity VARCHAR(36) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	first_offset BIGINT NOT NULL, 
	noted_at DATETIME NOT NULL, 
	taken_by VARCHAR(36), 
	taken_until DATETIME, 
	filled BOOLEAN NOT NULL, 
	PRIMARY KEY (topic, topic_identity, queue_id, next_offset)
);
CREATE INDEX ix_process_commands_instance ON process_commands (process, instance, number);
CREATE INDEX ix_process_instances_ended ON process_instances (process, ended, changed_at);
CREATE INDEX ix_process_commands_unsent ON process_commands (process, sent, due);
CREATE INDEX ix_scheduled_messages_due ON scheduled_messages (due, number);
CREATE VIEW balances AS SELECT balances__1."account_id", balances__1."balance" 
FROM balances__1;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('parked',3);
COMMIT;
