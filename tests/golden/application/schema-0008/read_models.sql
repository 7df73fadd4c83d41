BEGIN TRANSACTION;
CREATE TABLE balances__1 (
	account_id VARCHAR(255) NOT NULL, 
	balance BIGINT NOT NULL, 
	PRIMARY KEY (account_id)
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
	message BLOB NOT NULL, 
	CONSTRAINT uq_command_letters_command UNIQUE (aggregate_id, command_id)
);
CREATE TABLE event_streams (
	position INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	aggregate_id VARCHAR(255) NOT NULL, 
	aggregate_type VARCHAR(127) NOT NULL, 
	version BIGINT, 
	command_id VARCHAR(255) NOT NULL, 
	recorded_at DATETIME NOT NULL, 
	body TEXT NOT NULL, 
	CONSTRAINT uq_event_streams_version UNIQUE (aggregate_id, version), 
	CONSTRAINT uq_event_streams_command UNIQUE (aggregate_id, command_id)
);
CREATE TABLE headrace_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "headrace_schema" VALUES('0008');
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
INSERT INTO "process_commands" VALUES('greetings','569fb09a-2416-536a-b15e-82a6e6668cb9','a1',1,'Deposit','a1','{"name":"Deposit","version":1,"command_id":"569fb09a-2416-536a-b15e-82a6e6668cb9","correlation_id":"01a20cbf-a925-7673-bb81-0507b6266405","data":{"account_id":"a1","amount":5},"items":{}}',NULL,'2026-11-24 08:50:17.028673',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','5f72b0d8-e347-57cc-873f-6fb56df4792e','a1',2,'Close','a1','{"name":"Close","version":1,"command_id":"5f72b0d8-e347-57cc-873f-6fb56df4792e","correlation_id":"01a20cbf-a925-7673-bb81-0507b6266405","data":{"account_id":"a1"},"items":{}}','2027-09-20 08:50:17.019321','2026-11-24 08:50:17.028673',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','d82fdd9b-ec77-542b-9837-c54e49e39af5','a2',1,'Deposit','a2','{"name":"Deposit","version":1,"command_id":"d82fdd9b-ec77-542b-9837-c54e49e39af5","correlation_id":"01a20cbf-a941-74c5-a00e-743d6d016d09","data":{"account_id":"a2","amount":5},"items":{}}',NULL,'2026-11-24 08:50:17.049962',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','bb28f574-19af-5840-9e00-38dc89afe9c1','a2',2,'Close','a2','{"name":"Close","version":1,"command_id":"bb28f574-19af-5840-9e00-38dc89afe9c1","correlation_id":"01a20cbf-a941-74c5-a00e-743d6d016d09","data":{"account_id":"a2"},"items":{}}','2027-09-20 08:50:17.027454','2026-11-24 08:50:17.049962',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','cc0e4310-df5c-5a00-a502-475e74d3055b','a3',1,'Deposit','a3','{"name":"Deposit","version":1,"command_id":"cc0e4310-df5c-5a00-a502-475e74d3055b","correlation_id":"01a20cbf-a948-7296-9487-f6016c773ffd","data":{"account_id":"a3","amount":5},"items":{}}',NULL,'2026-11-24 08:50:17.049962',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','7d6cff3b-9aff-5a9c-98ea-241135694e5b','a3',2,'Close','a3','{"name":"Close","version":1,"command_id":"7d6cff3b-9aff-5a9c-98ea-241135694e5b","correlation_id":"01a20cbf-a948-7296-9487-f6016c773ffd","data":{"account_id":"a3"},"items":{}}','2027-09-20 08:50:17.042751','2026-11-24 08:50:17.049962',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','2188f76e-0a27-5e2f-b639-f40f0a669487','a4',1,'Deposit','a4','{"name":"Deposit","version":1,"command_id":"2188f76e-0a27-5e2f-b639-f40f0a669487","correlation_id":"01a20cbf-a957-7030-ba80-e42800ef06e9","data":{"account_id":"a4","amount":5},"items":{}}',NULL,'2026-11-24 08:50:17.069169',1,NULL);
INSERT INTO "process_commands" VALUES('greetings','f61d25f7-3792-50ae-ac97-6bdf64e61e3a','a4',2,'Close','a4','{"name":"Close","version":1,"command_id":"f61d25f7-3792-50ae-ac97-6bdf64e61e3a","correlation_id":"01a20cbf-a957-7030-ba80-e42800ef06e9","data":{"account_id":"a4"},"items":{}}','2027-09-20 08:50:17.048487','2026-11-24 08:50:17.069169',1,NULL);
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
	retries INTEGER NOT NULL, 
	PRIMARY KEY (process, instance)
);
INSERT INTO "process_instances" VALUES('greetings','a1','{"owner":"ann"}',1,'[]',0,'2026-11-24 08:50:17.028673','2026-11-24 08:50:17.028673','Opened','a1',1,2,NULL,NULL,0);
INSERT INTO "process_instances" VALUES('greetings','a2','{"owner":"bob"}',1,'[]',0,'2026-11-24 08:50:17.049962','2026-11-24 08:50:17.049962','Opened','a2',1,2,NULL,NULL,0);
INSERT INTO "process_instances" VALUES('greetings','a3','{"owner":"fold"}',1,'[]',0,'2026-11-24 08:50:17.049962','2026-11-24 08:50:17.049962','Opened','a3',1,2,NULL,NULL,0);
INSERT INTO "process_instances" VALUES('greetings','a4','{"owner":"handler"}',1,'[]',0,'2026-11-24 08:50:17.069169','2026-11-24 08:50:17.069169','Opened','a4',1,2,NULL,NULL,0);
INSERT INTO "process_instances" VALUES('greetings','a5',NULL,1,'[]',0,'2026-11-24 08:50:17.087718','2026-11-24 08:50:17.087718','Opened','a5',1,0,'Opened of a5: ValueError(''the process is broken'')','2026-11-24 08:50:17.087718',0);
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
INSERT INTO "process_journal" VALUES('greetings','a1',1,'a1','01a20cbf-a925-7673-bb81-0507b6266405','done');
INSERT INTO "process_journal" VALUES('greetings','a2',1,'a2','01a20cbf-a941-74c5-a00e-743d6d016d09','done');
INSERT INTO "process_journal" VALUES('greetings','a3',1,'a3','01a20cbf-a948-7296-9487-f6016c773ffd','done');
INSERT INTO "process_journal" VALUES('greetings','a4',1,'a4','01a20cbf-a957-7030-ba80-e42800ef06e9','done');
INSERT INTO "process_journal" VALUES('greetings','a5',1,'a5','01a20cbf-a95d-7522-8d20-42506610ae46','waits');
CREATE TABLE process_versions (
	process VARCHAR(127) NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (process, aggregate_id)
);
INSERT INTO "process_versions" VALUES('greetings','a1',7);
INSERT INTO "process_versions" VALUES('greetings','a2',2);
INSERT INTO "process_versions" VALUES('greetings','a3',3);
INSERT INTO "process_versions" VALUES('greetings','a4',3);
INSERT INTO "process_versions" VALUES('greetings','a5',2);
CREATE TABLE processes (
	name VARCHAR(127) NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "processes" VALUES('greetings');
CREATE TABLE projection_letters (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	topic VARCHAR(127) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	message_offset BIGINT NOT NULL, 
	parked_at DATETIME NOT NULL, 
	held BIGINT NOT NULL, 
	retries INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	PRIMARY KEY (name, generation, aggregate_id)
);
INSERT INTO "projection_letters" VALUES('handlers:events',0,'a4','ledger.events',1,3,'2026-11-24 08:50:17.056004',3,0,'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')');
INSERT INTO "projection_letters" VALUES('balances',1,'a3','ledger.events',2,0,'2026-11-24 08:50:17.072961',3,0,'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken');
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
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a2',2);
INSERT INTO "projection_versions" VALUES('balances',1,'a2',2);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a3',3);
INSERT INTO "projection_versions" VALUES('handlers:events',0,'a5',2);
INSERT INTO "projection_versions" VALUES('balances',1,'a4',3);
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
CREATE TABLE snapshots (
	aggregate_id VARCHAR(255) NOT NULL, 
	aggregate_type VARCHAR(127) NOT NULL, 
	version BIGINT NOT NULL, 
	state_version INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (aggregate_id)
);
CREATE INDEX ix_process_commands_instance ON process_commands (process, instance, number);
CREATE INDEX ix_process_commands_unsent ON process_commands (process, sent);
CREATE INDEX ix_process_instances_ended ON process_instances (process, ended, changed_at);
CREATE VIEW balances AS SELECT balances__1.account_id, balances__1.balance 
FROM balances__1;
DELETE FROM "sqlite_sequence";
COMMIT;
