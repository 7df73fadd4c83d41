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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a20d49-c305-743f-a343-7d55d453fab5','2026-11-24 11:21:07.625826','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20d49-c305-743f-a343-7d55d453fab5","correlation_id":"01a20d49-c305-743f-a343-7d55d453fab5","recorded_at":"2026-11-24T11:21:07.625826Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',1284631244);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a20d49-c342-73bf-af4b-c85eba25d794','2026-11-24 11:21:07.654962','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20d49-c342-73bf-af4b-c85eba25d794","correlation_id":"01a20d49-c342-73bf-af4b-c85eba25d794","recorded_at":"2026-11-24T11:21:07.654962Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',1042991498);
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a20d49-c34e-764d-be18-d34346dc85af','2026-11-24 11:21:07.667665','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20d49-c34e-764d-be18-d34346dc85af","correlation_id":"01a20d49-c34e-764d-be18-d34346dc85af","recorded_at":"2026-11-24T11:21:07.667665Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',3794545472);
INSERT INTO "event_streams" VALUES(4,'a1','Account',2,'0d7ee96c-d55a-5a56-99c1-ef65899d9b35','2026-11-24 11:21:07.674687','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"0d7ee96c-d55a-5a56-99c1-ef65899d9b35","correlation_id":"01a20d49-c305-743f-a343-7d55d453fab5","recorded_at":"2026-11-24T11:21:07.674687Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',4191061107);
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a20d49-c35b-7516-b22c-a53e3a432203','2026-11-24 11:21:07.680274','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20d49-c35b-7516-b22c-a53e3a432203","correlation_id":"01a20d49-c35b-7516-b22c-a53e3a432203","recorded_at":"2026-11-24T11:21:07.680274Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',1305755481);
INSERT INTO "event_streams" VALUES(6,'a5','Account',1,'01a20d49-c365-7710-be31-bc2056153c1a','2026-11-24 11:21:07.746081','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20d49-c365-7710-be31-bc2056153c1a","correlation_id":"01a20d49-c365-7710-be31-bc2056153c1a","recorded_at":"2026-11-24T11:21:07.746081Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',4004747456);
INSERT INTO "event_streams" VALUES(7,'a1','Account',3,'01a20d49-c3b0-7293-85a0-39694ac9debb','2026-11-24 11:21:07.786695','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20d49-c3b0-7293-85a0-39694ac9debb","correlation_id":"01a20d49-c3b0-7293-85a0-39694ac9debb","recorded_at":"2026-11-24T11:21:07.786695Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',4034743001);
INSERT INTO "event_streams" VALUES(8,'a2','Account',2,'4f1d02c7-8cff-5901-bd65-428deebdc6a9','2026-11-24 11:21:07.795844','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"4f1d02c7-8cff-5901-bd65-428deebdc6a9","correlation_id":"01a20d49-c342-73bf-af4b-c85eba25d794","recorded_at":"2026-11-24T11:21:07.795844Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1381433820);
INSERT INTO "event_streams" VALUES(9,'a4','Account',2,'81da5384-98be-5613-8470-0db79cc8e749','2026-11-24 11:21:07.795928','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"81da5384-98be-5613-8470-0db79cc8e749","correlation_id":"01a20d49-c35b-7516-b22c-a53e3a432203","recorded_at":"2026-11-24T11:21:07.795928Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1151557697);
INSERT INTO "event_streams" VALUES(10,'a3','Account',2,'0f8be889-b62e-5126-bc07-3baf803d8544','2026-11-24 11:21:07.795953','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"0f8be889-b62e-5126-bc07-3baf803d8544","correlation_id":"01a20d49-c34e-764d-be18-d34346dc85af","recorded_at":"2026-11-24T11:21:07.795953Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',4090186405);
INSERT INTO "event_streams" VALUES(11,'a1','Account',4,'01a20d49-c3d5-73ae-99d7-6a44f6d1c10d','2026-11-24 11:21:07.801317','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20d49-c3d5-73ae-99d7-6a44f6d1c10d","correlation_id":"01a20d49-c3d5-73ae-99d7-6a44f6d1c10d","recorded_at":"2026-11-24T11:21:07.801317Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',116476104);
INSERT INTO "event_streams" VALUES(12,'a1','Account',5,'01a20d49-c3ee-7154-9bd2-c10ce1eb5045','2026-11-24 11:21:07.827049','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20d49-c3ee-7154-9bd2-c10ce1eb5045","correlation_id":"01a20d49-c3ee-7154-9bd2-c10ce1eb5045","recorded_at":"2026-11-24T11:21:07.827049Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',1546027907);
INSERT INTO "event_streams" VALUES(13,'a1','Account',6,'01a20d49-c3f6-7672-a11e-d46d49096411','2026-11-24 11:21:07.830923','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20d49-c3f6-7672-a11e-d46d49096411","correlation_id":"01a20d49-c3f6-7672-a11e-d46d49096411","recorded_at":"2026-11-24T11:21:07.830923Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',2727273192);
INSERT INTO "event_streams" VALUES(14,'a1','Account',7,'01a20d49-c3fa-75b8-a23f-0c4a852c305a','2026-11-24 11:21:07.836523','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20d49-c3fa-75b8-a23f-0c4a852c305a","correlation_id":"01a20d49-c3fa-75b8-a23f-0c4a852c305a","recorded_at":"2026-11-24T11:21:07.836523Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',2782481680);
INSERT INTO "event_streams" VALUES(15,'a1','Account',NULL,'01a20d49-c400-7035-bf87-da4af2aaf415','2026-11-24 11:21:07.846395','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20d49-c400-7035-bf87-da4af2aaf415","correlation_id":"01a20d49-c400-7035-bf87-da4af2aaf415","recorded_at":"2026-11-24T11:21:07.846395Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',269666234);
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'01a20d49-c40c-73fa-966e-c5da19edb5a5','2026-11-24 11:21:07.857394','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a20d49-c40c-73fa-966e-c5da19edb5a5","correlation_id":"01a20d49-c40c-73fa-966e-c5da19edb5a5","recorded_at":"2026-11-24T11:21:07.857394Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',1293095885);
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a20d49-c414-7062-b10d-9a4785e9536f','2026-11-24 11:21:07.865143','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a20d49-c414-7062-b10d-9a4785e9536f","correlation_id":"01a20d49-c414-7062-b10d-9a4785e9536f","recorded_at":"2026-11-24T11:21:07.865143Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',4056530559);
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a20d49-c41f-7727-b7a2-d760b8f5e719','2026-11-24 11:21:07.874991','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20d49-c41f-7727-b7a2-d760b8f5e719","correlation_id":"01a20d49-c41f-7727-b7a2-d760b8f5e719","recorded_at":"2026-11-24T11:21:07.874991Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',4036422486);
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
INSERT INTO "parked" VALUES(1,'commands:',0,'a2','01a20d49-c425-732f-81ef-e30485a4d6a8','Deposit','holding','2026-11-24 11:21:07.881438',1,'ValueError','the command handler is broken','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92439323262636130312D313663372D343635352D623562322D373761333039363463353462B17265706C792D636F7272656C6174696F6ED92430316132306434392D633432352D373332662D383165662D653330353861376631663737A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306434392D633432352D373332662D383165662D653330343835613464366138222C22636F7272656C6174696F6E5F6964223A2230316132306434392D633432352D373332662D383165662D653330343835613464366138222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "parked" VALUES(2,'commands:',0,'a2','01a20d49-c433-72ac-860d-f3cfc86d15eb','Deposit','held','2026-11-24 11:21:07.892610',1,'Held','command 01a20d49-c425-732f-81ef-e30485a4d6a8 of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id','',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92439323262636130312D313663372D343635352D623562322D373761333039363463353462B17265706C792D636F7272656C6174696F6ED92430316132306434392D633433332D373261632D383630642D663364306462343165643639A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306434392D633433332D373261632D383630642D663363666338366431356562222C22636F7272656C6174696F6E5F6964223A2230316132306434392D633433332D373261632D383630642D663363666338366431356562222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
	error TEXT, 
	parked_at DATETIME, 
	retries INTEGER NOT NULL, traceback TEXT, 
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
INSERT INTO "store_identity" VALUES(1,'01a20d49-c298-763d-b710-e11365abb233',X'2A8EB3262FF9F4B0402C9821AD6BA359A155A40C366B0E9409ED65048432B0B5','2026-11-24 11:21:07.480187');
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('parked',2);
INSERT INTO "sqlite_sequence" VALUES('event_streams',18);
COMMIT;
