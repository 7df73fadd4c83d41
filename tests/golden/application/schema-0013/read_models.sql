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
CREATE TABLE command_letters (
	number INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	aggregate_id VARCHAR(255) NOT NULL, 
	command_id VARCHAR(255) NOT NULL, 
	name TEXT NOT NULL, 
	state VARCHAR(7) NOT NULL, 
	parked_at DATETIME NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	sentence TEXT NOT NULL, 
	message BLOB NOT NULL, trace TEXT DEFAULT '' NOT NULL, 
	CONSTRAINT uq_command_letters_command UNIQUE (aggregate_id, command_id)
);
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
INSERT INTO "headrace_schema" VALUES('0013');
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
INSERT INTO "process_commands" VALUES('greetings','65d59dc6-01cc-55d7-954a-31d8ed4d88c3','a1',1,'Deposit','a1','{"name":"Deposit","version":1,"command_id":"65d59dc6-01cc-55d7-954a-31d8ed4d88c3","correlation_id":"01a20cc3-2e91-7698-b6fc-a9888679188b","data":{"account_id":"a1","amount":5},"items":{}}',NULL,'2026-11-24 08:54:07.794547',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','0da054f6-9eae-5b1d-88a1-7eb069415daa','a1',2,'Close','a1','{"name":"Close","version":1,"command_id":"0da054f6-9eae-5b1d-88a1-7eb069415daa","correlation_id":"01a20cc3-2e91-7698-b6fc-a9888679188b","data":{"account_id":"a1"},"items":{}}','2027-09-20 08:54:07.780449','2026-11-24 08:54:07.794547',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','035c4aaf-02b4-552c-8377-5e4220f2bc70','a2',1,'Deposit','a2','{"name":"Deposit","version":1,"command_id":"035c4aaf-02b4-552c-8377-5e4220f2bc70","correlation_id":"01a20cc3-2eac-7095-8d96-6a197097297a","data":{"account_id":"a2","amount":5},"items":{}}',NULL,'2026-11-24 08:54:07.821522',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','077b975c-f1a0-5b50-a4d1-85cc7efba8b0','a2',2,'Close','a2','{"name":"Close","version":1,"command_id":"077b975c-f1a0-5b50-a4d1-85cc7efba8b0","correlation_id":"01a20cc3-2eac-7095-8d96-6a197097297a","data":{"account_id":"a2"},"items":{}}','2027-09-20 08:54:07.789469','2026-11-24 08:54:07.821522',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','6c98e02d-b37c-5f4d-9bf7-0bb99f6acd0f','a4',1,'Deposit','a4','{"name":"Deposit","version":1,"command_id":"6c98e02d-b37c-5f4d-9bf7-0bb99f6acd0f","correlation_id":"01a20cc3-2ec0-72d2-840e-fb49e6242a3c","data":{"account_id":"a4","amount":5},"items":{}}',NULL,'2026-11-24 08:54:07.821522',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','d08bc034-7bfb-5772-a4c2-287a2bf884e6','a4',2,'Close','a4','{"name":"Close","version":1,"command_id":"d08bc034-7bfb-5772-a4c2-287a2bf884e6","correlation_id":"01a20cc3-2ec0-72d2-840e-fb49e6242a3c","data":{"account_id":"a4"},"items":{}}','2027-09-20 08:54:07.809023','2026-11-24 08:54:07.821522',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','6359752b-667b-5197-8ccd-76c4180ef858','a3',1,'Deposit','a3','{"name":"Deposit","version":1,"command_id":"6359752b-667b-5197-8ccd-76c4180ef858","correlation_id":"01a20cc3-2eb2-7017-b309-c49a90e422dd","data":{"account_id":"a3","amount":5},"items":{}}',NULL,'2026-11-24 08:54:07.821522',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','13501728-d955-558c-af4d-8055f5ca2d57','a3',2,'Close','a3','{"name":"Close","version":1,"command_id":"13501728-d955-558c-af4d-8055f5ca2d57","correlation_id":"01a20cc3-2eb2-7017-b309-c49a90e422dd","data":{"account_id":"a3"},"items":{}}','2027-09-20 08:54:07.802176','2026-11-24 08:54:07.821522',1,NULL);
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
INSERT INTO "process_instances" VALUES('greetings','a1','{"owner":"ann"}',1,'[]',0,'2026-11-24 08:54:07.794547','2026-11-24 08:54:07.794547','Opened','a1',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a2','{"owner":"bob"}',1,'[]',0,'2026-11-24 08:54:07.821522','2026-11-24 08:54:07.821522','Opened','a2',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a3','{"owner":"fold"}',1,'[]',0,'2026-11-24 08:54:07.821522','2026-11-24 08:54:07.821522','Opened','a3',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a4','{"owner":"handler"}',1,'[]',0,'2026-11-24 08:54:07.821522','2026-11-24 08:54:07.821522','Opened','a4',1,2,NULL,NULL,0,NULL);
INSERT INTO "process_instances" VALUES('greetings','a5',NULL,1,'[]',0,'2026-11-24 08:54:07.849658','2026-11-24 08:54:07.849658','Opened','a5',1,0,'Opened of a5: ValueError(''the process is broken'')','2026-11-24 08:54:07.849658',0,'Traceback (most recent call last):
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
INSERT INTO "process_journal" VALUES('greetings','a1',1,'a1','01a20cc3-2e91-7698-b6fc-a9888679188b','done');
INSERT INTO "process_journal" VALUES('greetings','a2',1,'a2','01a20cc3-2eac-7095-8d96-6a197097297a','done');
INSERT INTO "process_journal" VALUES('greetings','a4',1,'a4','01a20cc3-2ec0-72d2-840e-fb49e6242a3c','done');
INSERT INTO "process_journal" VALUES('greetings','a3',1,'a3','01a20cc3-2eb2-7017-b309-c49a90e422dd','done');
INSERT INTO "process_journal" VALUES('greetings','a5',1,'a5','01a20cc3-2ec5-73fe-8d29-52d57c1be7c8','waits');
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
CREATE TABLE "projection_letters" (
	name VARCHAR(127) NOT NULL, 
	generation INTEGER NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	topic VARCHAR(127) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	message_offset BIGINT NOT NULL, 
	parked_at DATETIME NOT NULL, 
	held BIGINT NOT NULL, 
	retries INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	version BIGINT, 
	traceback TEXT, 
	PRIMARY KEY (name, generation, aggregate_id)
);
INSERT INTO "projection_letters" VALUES('balances',1,'a3','ledger.events',2,0,'2026-11-24 08:54:07.810522',3,0,'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken',NULL,'Traceback (most recent call last):
  File "framework/headrace/projections/definition/fold.py", line 129, in fold_facts
    changes[key] = next_row(before, event, context, key)
                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/rules.py", line 86, in next_row
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
  File "framework/headrace/projections/batch_transaction.py", line 229, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 302, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken');
INSERT INTO "projection_letters" VALUES('handlers:events',0,'a4','ledger.events',1,3,'2026-11-24 08:54:07.820319',3,0,'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')',NULL,'Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 243, in _call
    await call()
  File "framework/headrace/handlers/call.py", line 56, in _call
    await deadline.run(handler(event, context))
  File "framework/headrace/_runtime/handler_deadline.py", line 34, in run
    awaited = work.send(None)
              ^^^^^^^^^^^^^^^
  File "tests/golden/application/ledger.py", line 119, in write_letter
    raise ValueError("the handler is broken")
ValueError: the handler is broken

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "framework/headrace/handlers/runner.py", line 173, in _take
    await self._handle(message, standing)
  File "framework/headrace/handlers/runner.py", line 201, in _handle
    await call_all(self._handlers, stream, self._call)
  File "framework/headrace/handlers/call.py", line 47, in call_all
    raise EventHandlerError(
headrace.errors.EventHandlerError: write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')');
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
INSERT INTO "reader_marks" VALUES('balances',1,-1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',0,'','','');
INSERT INTO "reader_marks" VALUES('handlers:events',0,-1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',0,'','','');
INSERT INTO "reader_marks" VALUES('process:greetings',0,-1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,-1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',0,'','','');
INSERT INTO "reader_marks" VALUES('topic:ledger.events',0,0,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',0,'','','');
INSERT INTO "reader_marks" VALUES('balances',1,1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',13,'01a20cc3-2eef-7187-b226-80d2a8c69213','a4','01a20cc3-2eef-7187-b226-80d2a8c69213');
INSERT INTO "reader_marks" VALUES('balances',1,2,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',5,'01a20cc3-2ef3-77dd-a32e-24f2bf772bcc','a5','01a20cc3-2ef3-77dd-a32e-24f2bf772bcc');
INSERT INTO "reader_marks" VALUES('handlers:events',0,1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',13,'01a20cc3-2eef-7187-b226-80d2a8c69213','a4','01a20cc3-2eef-7187-b226-80d2a8c69213');
INSERT INTO "reader_marks" VALUES('handlers:events',0,2,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',5,'01a20cc3-2ef3-77dd-a32e-24f2bf772bcc','a5','01a20cc3-2ef3-77dd-a32e-24f2bf772bcc');
INSERT INTO "reader_marks" VALUES('process:greetings',0,1,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',13,'01a20cc3-2eef-7187-b226-80d2a8c69213','a4','01a20cc3-2eef-7187-b226-80d2a8c69213');
INSERT INTO "reader_marks" VALUES('process:greetings',0,2,'0f3e7d7d-1ef3-4a2c-90eb-9809d860acc1','01a20cc3-2e63-722e-bff9-130cfb4d0177',5,'01a20cc3-2ef3-77dd-a32e-24f2bf772bcc','a5','01a20cc3-2ef3-77dd-a32e-24f2bf772bcc');
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
COMMIT;
