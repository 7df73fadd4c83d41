BEGIN TRANSACTION;
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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a224c2-415c-7673-8130-a44e88134869','2026-11-29 00:44:00.650342','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a224c2-415c-7673-8130-a44e88134869","correlation_id":"01a224c2-415c-7673-8130-a44e88134869","recorded_at":"2026-11-29T00:44:00.650342Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',1039213380);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a224c2-43ae-719f-b30e-fbd54645fe3f','2026-11-29 00:44:00.920743','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a224c2-43ae-719f-b30e-fbd54645fe3f","correlation_id":"01a224c2-43ae-719f-b30e-fbd54645fe3f","recorded_at":"2026-11-29T00:44:00.920743Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',1672765394);
INSERT INTO "event_streams" VALUES(3,'a1','Account',2,'bb514e81-0f9e-559f-9fe2-038c8585f3f4','2026-11-29 00:44:01.290171','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"bb514e81-0f9e-559f-9fe2-038c8585f3f4","correlation_id":"01a224c2-415c-7673-8130-a44e88134869","recorded_at":"2026-11-29T00:44:01.290171Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1447335964);
INSERT INTO "event_streams" VALUES(4,'a3','Account',1,'01a224c2-4440-76aa-a62a-1bba8b8acb22','2026-11-29 00:44:01.291621','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a224c2-4440-76aa-a62a-1bba8b8acb22","correlation_id":"01a224c2-4440-76aa-a62a-1bba8b8acb22","recorded_at":"2026-11-29T00:44:01.291621Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',1774229568);
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a224c2-45ac-7429-95c0-1526b5e9d3a2','2026-11-29 00:44:01.483577','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a224c2-45ac-7429-95c0-1526b5e9d3a2","correlation_id":"01a224c2-45ac-7429-95c0-1526b5e9d3a2","recorded_at":"2026-11-29T00:44:01.483577Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',4035739753);
INSERT INTO "event_streams" VALUES(6,'a2','Account',2,'0c78f2da-71e4-5d9b-b55d-cc0b87b0faf2','2026-11-29 00:44:01.505141','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"0c78f2da-71e4-5d9b-b55d-cc0b87b0faf2","correlation_id":"01a224c2-43ae-719f-b30e-fbd54645fe3f","recorded_at":"2026-11-29T00:44:01.505141Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1730912021);
INSERT INTO "event_streams" VALUES(7,'a5','Account',1,'01a224c2-4668-72dd-8857-dce2fec630a4','2026-11-29 00:44:01.526095','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a224c2-4668-72dd-8857-dce2fec630a4","correlation_id":"01a224c2-4668-72dd-8857-dce2fec630a4","recorded_at":"2026-11-29T00:44:01.526095Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',2810586837);
INSERT INTO "event_streams" VALUES(8,'a1','Account',3,'01a224c2-467d-74e7-bd7e-7bc85b66d388','2026-11-29 00:44:01.534445','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a224c2-467d-74e7-bd7e-7bc85b66d388","correlation_id":"01a224c2-467d-74e7-bd7e-7bc85b66d388","recorded_at":"2026-11-29T00:44:01.534445Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',642834361);
INSERT INTO "event_streams" VALUES(9,'a1','Account',4,'01a224c2-4687-7573-9457-4e5e1a656764','2026-11-29 00:44:01.544762','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a224c2-4687-7573-9457-4e5e1a656764","correlation_id":"01a224c2-4687-7573-9457-4e5e1a656764","recorded_at":"2026-11-29T00:44:01.544762Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',3393049781);
INSERT INTO "event_streams" VALUES(10,'a1','Account',5,'01a224c2-468b-7518-9f91-7de2e8770c11','2026-11-29 00:44:01.553912','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a224c2-468b-7518-9f91-7de2e8770c11","correlation_id":"01a224c2-468b-7518-9f91-7de2e8770c11","recorded_at":"2026-11-29T00:44:01.553912Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',3234516152);
INSERT INTO "event_streams" VALUES(11,'a1','Account',6,'01a224c2-4697-7000-bea5-c40d4e7cb869','2026-11-29 00:44:01.561869','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a224c2-4697-7000-bea5-c40d4e7cb869","correlation_id":"01a224c2-4697-7000-bea5-c40d4e7cb869","recorded_at":"2026-11-29T00:44:01.561869Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',3474202784);
INSERT INTO "event_streams" VALUES(12,'a4','Account',2,'a9c3ad36-c9d0-54bf-a99f-a0011e52977d','2026-11-29 00:44:01.713819','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"a9c3ad36-c9d0-54bf-a99f-a0011e52977d","correlation_id":"01a224c2-45ac-7429-95c0-1526b5e9d3a2","recorded_at":"2026-11-29T00:44:01.713819Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',3163405925);
INSERT INTO "event_streams" VALUES(13,'a1','Account',7,'01a224c2-472a-771b-ba1e-0122dd84bf33','2026-11-29 00:44:01.725922','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a224c2-472a-771b-ba1e-0122dd84bf33","correlation_id":"01a224c2-472a-771b-ba1e-0122dd84bf33","recorded_at":"2026-11-29T00:44:01.725922Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',3294385855);
INSERT INTO "event_streams" VALUES(14,'a1','Account',NULL,'01a224c2-4768-7450-abdd-80770722b01f','2026-11-29 00:44:01.778432','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a224c2-4768-7450-abdd-80770722b01f","correlation_id":"01a224c2-4768-7450-abdd-80770722b01f","recorded_at":"2026-11-29T00:44:01.778432Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',289066139);
INSERT INTO "event_streams" VALUES(15,'a3','Account',2,'644bf160-fd59-5d99-9d1a-86de5ebed7cc','2026-11-29 00:44:01.821449','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"644bf160-fd59-5d99-9d1a-86de5ebed7cc","correlation_id":"01a224c2-4440-76aa-a62a-1bba8b8acb22","recorded_at":"2026-11-29T00:44:01.821449Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',766030437);
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'01a224c2-479a-721e-a789-b7aa47ca53cb','2026-11-29 00:44:01.838141','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a224c2-479a-721e-a789-b7aa47ca53cb","correlation_id":"01a224c2-479a-721e-a789-b7aa47ca53cb","recorded_at":"2026-11-29T00:44:01.838141Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',3235287358);
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a224c2-47dc-754b-86ae-4f8fcd872284','2026-11-29 00:44:01.906352','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a224c2-47dc-754b-86ae-4f8fcd872284","correlation_id":"01a224c2-47dc-754b-86ae-4f8fcd872284","recorded_at":"2026-11-29T00:44:01.906352Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',808631811);
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a224c2-4879-724e-bae2-64e1227f535a','2026-11-29 00:44:02.050111','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a224c2-4879-724e-bae2-64e1227f535a","correlation_id":"01a224c2-4879-724e-bae2-64e1227f535a","recorded_at":"2026-11-29T00:44:02.050111Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',900115720);
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
INSERT INTO "parked" VALUES(1,'commands:',0,'a2','01a224c2-48a0-763d-bb9c-e77c1d1d2ef8','Deposit','holding','2026-11-29 00:44:02.109969',1,'ValueError','the command handler is broken','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92432626332616131382D396634652D343530352D393637332D326332326363393665323461B17265706C792D636F7272656C6174696F6ED92430316132323463322D343861302D373633642D626239632D653737643765333234623162A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132323463322D343861302D373633642D626239632D653737633164316432656638222C22636F7272656C6174696F6E5F6964223A2230316132323463322D343861302D373633642D626239632D653737633164316432656638222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "parked" VALUES(2,'commands:',0,'a2','01a224c2-48ce-742f-b1aa-1ea0b26a262d','Deposit','held','2026-11-29 00:44:02.150912',1,'Held','command 01a224c2-48a0-763d-bb9c-e77c1d1d2ef8 of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id','',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92432626332616131382D396634652D343530352D393637332D326332326363393665323461B17265706C792D636F7272656C6174696F6ED92430316132323463322D343863662D373338352D393230642D386637623939376265656136A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132323463322D343863652D373432662D623161612D316561306232366132363264222C22636F7272656C6174696F6E5F6964223A2230316132323463322D343863652D373432662D623161612D316561306232366132363264222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
CREATE TABLE process_versions (
	process VARCHAR(127) NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (process, aggregate_id)
);
CREATE TABLE processes (
	name VARCHAR(127) NOT NULL, 
	PRIMARY KEY (name)
);
CREATE TABLE projection_generations (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	version INTEGER NOT NULL, 
	as_of TEXT, followed BOOLEAN DEFAULT 0 NOT NULL, by_command BOOLEAN DEFAULT 0 NOT NULL, 
	PRIMARY KEY (name, generation)
);
CREATE TABLE projection_offsets (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	topic VARCHAR(127) NOT NULL, 
	queue_id INTEGER NOT NULL, 
	next_offset BIGINT NOT NULL, 
	PRIMARY KEY (name, generation, topic, queue_id)
);
CREATE TABLE projection_versions (
	name VARCHAR(40) NOT NULL, 
	generation INTEGER NOT NULL, 
	aggregate_id VARCHAR(255) NOT NULL, 
	version BIGINT NOT NULL, 
	PRIMARY KEY (name, generation, aggregate_id)
);
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
INSERT INTO "snapshots" VALUES('a1','Account',6,1,'{"balance":405}');
INSERT INTO "snapshots" VALUES('a3','Account',3,1,'{"balance":12}');
INSERT INTO "snapshots" VALUES('a4','Account',3,1,'{"balance":12}');
CREATE TABLE store_identity (
	number INTEGER NOT NULL, 
	store_id VARCHAR(36) NOT NULL, 
	seal_key BLOB NOT NULL, 
	made_at DATETIME NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "store_identity" VALUES(1,'01a224c2-3c93-7563-92eb-fdf7c69f1d25',X'CE9B039060A15BCCED7A72C27BD82210E5B8D632867B6BFEF313C9E345F50DE6','2026-11-29 00:43:58.995297');
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('parked',2);
INSERT INTO "sqlite_sequence" VALUES('event_streams',18);
COMMIT;
