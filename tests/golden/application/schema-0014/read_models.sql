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
INSERT INTO "headrace_schema" VALUES('0014');
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
INSERT INTO "parked" VALUES(1,'balances',1,'a3','','','parked','2026-11-24 11:21:07.679311',1,'ProjectionError','projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken','Traceback (most recent call last):
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
  File "lib/python3.11/concurrent/futures/thread.py", line 58, in run
    result = self.fn(*self.args, **self.kwargs)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/tables/read_models.py", line 482, in _run
    return work(connection)
           ^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 232, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 305, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken',3,NULL,'ledger.events',2,0,NULL);
INSERT INTO "parked" VALUES(2,'handlers:events',0,'a4','','','parked','2026-11-24 11:21:07.759608',1,'EventHandlerError','write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')','Traceback (most recent call last):
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
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')',3,NULL,'ledger.events',1,3,NULL);
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
INSERT INTO "process_commands" VALUES('greetings','0d7ee96c-d55a-5a56-99c1-ef65899d9b35','a1',1,'Deposit','a1','{"name":"Deposit","version":1,"command_id":"0d7ee96c-d55a-5a56-99c1-ef65899d9b35","correlation_id":"01a20d49-c305-743f-a343-7d55d453fab5","data":{"account_id":"a1","amount":5},"items":{}}',NULL,'2026-11-24 11:21:07.660057',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','a0174d89-a12a-5573-af39-9024cfce03cd','a1',2,'Close','a1','{"name":"Close","version":1,"command_id":"a0174d89-a12a-5573-af39-9024cfce03cd","correlation_id":"01a20d49-c305-743f-a343-7d55d453fab5","data":{"account_id":"a1"},"items":{}}','2027-09-20 11:21:07.625826','2026-11-24 11:21:07.660057',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','4f1d02c7-8cff-5901-bd65-428deebdc6a9','a2',1,'Deposit','a2','{"name":"Deposit","version":1,"command_id":"4f1d02c7-8cff-5901-bd65-428deebdc6a9","correlation_id":"01a20d49-c342-73bf-af4b-c85eba25d794","data":{"account_id":"a2","amount":5},"items":{}}',NULL,'2026-11-24 11:21:07.765344',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','f475bdb7-6efd-5f17-a5d7-da65493c13ec','a2',2,'Close','a2','{"name":"Close","version":1,"command_id":"f475bdb7-6efd-5f17-a5d7-da65493c13ec","correlation_id":"01a20d49-c342-73bf-af4b-c85eba25d794","data":{"account_id":"a2"},"items":{}}','2027-09-20 11:21:07.654962','2026-11-24 11:21:07.765344',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','81da5384-98be-5613-8470-0db79cc8e749','a4',1,'Deposit','a4','{"name":"Deposit","version":1,"command_id":"81da5384-98be-5613-8470-0db79cc8e749","correlation_id":"01a20d49-c35b-7516-b22c-a53e3a432203","data":{"account_id":"a4","amount":5},"items":{}}',NULL,'2026-11-24 11:21:07.765344',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','a0561496-e1c9-5018-a263-3069736114b5','a4',2,'Close','a4','{"name":"Close","version":1,"command_id":"a0561496-e1c9-5018-a263-3069736114b5","correlation_id":"01a20d49-c35b-7516-b22c-a53e3a432203","data":{"account_id":"a4"},"items":{}}','2027-09-20 11:21:07.680274','2026-11-24 11:21:07.765344',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','0f8be889-b62e-5126-bc07-3baf803d8544','a3',1,'Deposit','a3','{"name":"Deposit","version":1,"command_id":"0f8be889-b62e-5126-bc07-3baf803d8544","correlation_id":"01a20d49-c34e-764d-be18-d34346dc85af","data":{"account_id":"a3","amount":5},"items":{}}',NULL,'2026-11-24 11:21:07.765344',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','4dce6f52-0a5b-5d62-94cb-e68496ff00c0','a3',2,'Close','a3','{"name":"Close","version":1,"command_id":"4dce6f52-0a5b-5d62-94cb-e68496ff00c0","correlation_id":"01a20d49-c34e-764d-be18-d34346dc85af","data":{"account_id":"a3"},"items":{}}','2027-09-20 11:21:07.667665','2026-11-24 11:21:07.765344',1,NULL);
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
	error TEXT, 
	parked_at DATETIME, 
	retries INTEGER NOT NULL, traceback TEXT, 
	PRIMARY KEY (process, instance)
);
INSERT INTO "process_instances" VALUES('greetings','a1','{"owner":"ann"}',1,'[]',0,'2026-11-24 11:21:07.660057','2026-11-24 11:21:07.660057','Opened','a1',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a2','{"owner":"bob"}',1,'[]',0,'2026-11-24 11:21:07.765344','2026-11-24 11:21:07.765344','Opened','a2',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a3','{"owner":"fold"}',1,'[]',0,'2026-11-24 11:21:07.765344','2026-11-24 11:21:07.765344','Opened','a3',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a4','{"owner":"handler"}',1,'[]',0,'2026-11-24 11:21:07.765344','2026-11-24 11:21:07.765344','Opened','a4',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a5',NULL,1,'[]',0,'2026-11-24 11:21:07.834947','2026-11-24 11:21:07.834947','Opened','a5',1,0,'Opened of a5: ValueError(''the process is broken'')','2026-11-24 11:21:07.834947',0,'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken');
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
INSERT INTO "process_journal" VALUES('greetings','a1',1,'a1','01a20d49-c305-743f-a343-7d55d453fab5','done');
INSERT INTO "process_journal" VALUES('greetings','a2',1,'a2','01a20d49-c342-73bf-af4b-c85eba25d794','done');
INSERT INTO "process_journal" VALUES('greetings','a4',1,'a4','01a20d49-c35b-7516-b22c-a53e3a432203','done');
INSERT INTO "process_journal" VALUES('greetings','a3',1,'a3','01a20d49-c34e-764d-be18-d34346dc85af','done');
INSERT INTO "process_journal" VALUES('greetings','a5',1,'a5','01a20d49-c365-7710-be31-bc2056153c1a','waits');
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
INSERT INTO "projection_versions" VALUES('balances',1,'a5',2);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a5',2);
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
INSERT INTO "reader_marks" VALUES('balances',1,-1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',0,'','','');
INSERT INTO "reader_marks" VALUES('handlers:events',0,-1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',0,'','','');
INSERT INTO "reader_marks" VALUES('process:greetings',0,-1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,-1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,0,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',0,'','','');
INSERT INTO "reader_marks" VALUES('balances',1,1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',13,'01a20d49-c414-7062-b10d-9a4785e9536f','a4','01a20d49-c414-7062-b10d-9a4785e9536f');
INSERT INTO "reader_marks" VALUES('balances',1,2,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',5,'01a20d49-c41f-7727-b7a2-d760b8f5e719','a5','01a20d49-c41f-7727-b7a2-d760b8f5e719');
INSERT INTO "reader_marks" VALUES('handlers:events',0,1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',13,'01a20d49-c414-7062-b10d-9a4785e9536f','a4','01a20d49-c414-7062-b10d-9a4785e9536f');
INSERT INTO "reader_marks" VALUES('handlers:events',0,2,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',5,'01a20d49-c41f-7727-b7a2-d760b8f5e719','a5','01a20d49-c41f-7727-b7a2-d760b8f5e719');
INSERT INTO "reader_marks" VALUES('process:greetings',0,1,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',13,'01a20d49-c414-7062-b10d-9a4785e9536f','a4','01a20d49-c414-7062-b10d-9a4785e9536f');
INSERT INTO "reader_marks" VALUES('process:greetings',0,2,'d8e93c19-b562-4a2e-9ee4-35c4b12b70f7','01a20d49-c298-763d-b710-e11365abb233',5,'01a20d49-c41f-7727-b7a2-d760b8f5e719','a5','01a20d49-c41f-7727-b7a2-d760b8f5e719');
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
CREATE INDEX ix_process_instances_parked ON process_instances (process, parked_at) WHERE parked_at IS NOT NULL;
CREATE INDEX ix_process_commands_unsent ON process_commands (process, sent, due);
CREATE VIEW balances AS SELECT balances__1."account_id", balances__1."balance" 
FROM balances__1;
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('parked',2);
COMMIT;
