BEGIN TRANSACTION;
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
INSERT INTO "command_letters" VALUES(1,'a2','01a20cc3-2ef8-739e-abad-9365b0ed596e','Deposit','holding','2026-11-24 08:54:07.867090',1,'ValueError','the command handler is broken',X'83A36B6579A26132A76865616465727382A87265706C792D746FD92465373364353137342D303930642D343263392D393630372D636562363031313565323662B17265706C792D636F7272656C6174696F6ED92430316132306363332D326566382D373339652D616261642D393336366337616232663934A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306363332D326566382D373339652D616261642D393336356230656435393665222C22636F7272656C6174696F6E5F6964223A2230316132306363332D326566382D373339652D616261642D393336356230656435393665222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 135, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken');
INSERT INTO "command_letters" VALUES(2,'a2','01a20cc3-2eff-7605-99dd-34fed6ebfd2e','Deposit','held','2026-11-24 08:54:07.872378',1,'Held','command 01a20cc3-2ef8-739e-abad-9365b0ed596e of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id',X'83A36B6579A26132A76865616465727382A87265706C792D746FD92465373364353137342D303930642D343263392D393630372D636562363031313565323662B17265706C792D636F7272656C6174696F6ED92430316132306363332D326566662D373630352D393964642D333466666638636331356237A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306363332D326566662D373630352D393964642D333466656436656266643265222C22636F7272656C6174696F6E5F6964223A2230316132306363332D326566662D373630352D393964642D333466656436656266643265222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D','');
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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a20cc3-2e91-7698-b6fc-a9888679188b','2026-11-24 08:54:07.780449','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20cc3-2e91-7698-b6fc-a9888679188b","correlation_id":"01a20cc3-2e91-7698-b6fc-a9888679188b","recorded_at":"2026-11-24T08:54:07.780449Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',3217998929);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a20cc3-2eac-7095-8d96-6a197097297a','2026-11-24 08:54:07.789469','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20cc3-2eac-7095-8d96-6a197097297a","correlation_id":"01a20cc3-2eac-7095-8d96-6a197097297a","recorded_at":"2026-11-24T08:54:07.789469Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',42448048);
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a20cc3-2eb2-7017-b309-c49a90e422dd','2026-11-24 08:54:07.802176','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20cc3-2eb2-7017-b309-c49a90e422dd","correlation_id":"01a20cc3-2eb2-7017-b309-c49a90e422dd","recorded_at":"2026-11-24T08:54:07.802176Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',3003483539);
INSERT INTO "event_streams" VALUES(4,'a1','Account',2,'65d59dc6-01cc-55d7-954a-31d8ed4d88c3','2026-11-24 08:54:07.804075','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"65d59dc6-01cc-55d7-954a-31d8ed4d88c3","correlation_id":"01a20cc3-2e91-7698-b6fc-a9888679188b","recorded_at":"2026-11-24T08:54:07.804075Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',189674293);
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a20cc3-2ec0-72d2-840e-fb49e6242a3c','2026-11-24 08:54:07.809023','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20cc3-2ec0-72d2-840e-fb49e6242a3c","correlation_id":"01a20cc3-2ec0-72d2-840e-fb49e6242a3c","recorded_at":"2026-11-24T08:54:07.809023Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',1008465206);
INSERT INTO "event_streams" VALUES(6,'a5','Account',1,'01a20cc3-2ec5-73fe-8d29-52d57c1be7c8','2026-11-24 08:54:07.814054','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20cc3-2ec5-73fe-8d29-52d57c1be7c8","correlation_id":"01a20cc3-2ec5-73fe-8d29-52d57c1be7c8","recorded_at":"2026-11-24T08:54:07.814054Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',4277538993);
INSERT INTO "event_streams" VALUES(7,'a1','Account',3,'01a20cc3-2ec8-77a8-9209-4de4ca416ed0','2026-11-24 08:54:07.817717','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20cc3-2ec8-77a8-9209-4de4ca416ed0","correlation_id":"01a20cc3-2ec8-77a8-9209-4de4ca416ed0","recorded_at":"2026-11-24T08:54:07.817717Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',1646353364);
INSERT INTO "event_streams" VALUES(8,'a1','Account',4,'01a20cc3-2ecf-769b-aabe-7c78e242c6c0','2026-11-24 08:54:07.824014','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20cc3-2ecf-769b-aabe-7c78e242c6c0","correlation_id":"01a20cc3-2ecf-769b-aabe-7c78e242c6c0","recorded_at":"2026-11-24T08:54:07.824014Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',2867665965);
INSERT INTO "event_streams" VALUES(9,'a2','Account',2,'035c4aaf-02b4-552c-8377-5e4220f2bc70','2026-11-24 08:54:07.827230','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"035c4aaf-02b4-552c-8377-5e4220f2bc70","correlation_id":"01a20cc3-2eac-7095-8d96-6a197097297a","recorded_at":"2026-11-24T08:54:07.827230Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1499951379);
INSERT INTO "event_streams" VALUES(10,'a3','Account',2,'6359752b-667b-5197-8ccd-76c4180ef858','2026-11-24 08:54:07.830352','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"6359752b-667b-5197-8ccd-76c4180ef858","correlation_id":"01a20cc3-2eb2-7017-b309-c49a90e422dd","recorded_at":"2026-11-24T08:54:07.830352Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1986966220);
INSERT INTO "event_streams" VALUES(11,'a4','Account',2,'6c98e02d-b37c-5f4d-9bf7-0bb99f6acd0f','2026-11-24 08:54:07.830643','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"6c98e02d-b37c-5f4d-9bf7-0bb99f6acd0f","correlation_id":"01a20cc3-2ec0-72d2-840e-fb49e6242a3c","recorded_at":"2026-11-24T08:54:07.830643Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',3521610295);
INSERT INTO "event_streams" VALUES(12,'a1','Account',5,'01a20cc3-2ed8-76a1-88ef-34d73d77d7e1','2026-11-24 08:54:07.834578','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20cc3-2ed8-76a1-88ef-34d73d77d7e1","correlation_id":"01a20cc3-2ed8-76a1-88ef-34d73d77d7e1","recorded_at":"2026-11-24T08:54:07.834578Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',3330448201);
INSERT INTO "event_streams" VALUES(13,'a1','Account',6,'01a20cc3-2ede-7706-90ce-8e9e163e4b2d','2026-11-24 08:54:07.839524','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20cc3-2ede-7706-90ce-8e9e163e4b2d","correlation_id":"01a20cc3-2ede-7706-90ce-8e9e163e4b2d","recorded_at":"2026-11-24T08:54:07.839524Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',1585421053);
INSERT INTO "event_streams" VALUES(14,'a1','Account',7,'01a20cc3-2ee2-70e2-8f82-8ae048764e68','2026-11-24 08:54:07.843301','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20cc3-2ee2-70e2-8f82-8ae048764e68","correlation_id":"01a20cc3-2ee2-70e2-8f82-8ae048764e68","recorded_at":"2026-11-24T08:54:07.843301Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',2551505226);
INSERT INTO "event_streams" VALUES(15,'a1','Account',NULL,'01a20cc3-2ee6-722e-b476-9dd4b807011a','2026-11-24 08:54:07.847045','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20cc3-2ee6-722e-b476-9dd4b807011a","correlation_id":"01a20cc3-2ee6-722e-b476-9dd4b807011a","recorded_at":"2026-11-24T08:54:07.847045Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',2063678857);
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'01a20cc3-2eeb-74aa-87f9-23f28dc87abb','2026-11-24 08:54:07.852577','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a20cc3-2eeb-74aa-87f9-23f28dc87abb","correlation_id":"01a20cc3-2eeb-74aa-87f9-23f28dc87abb","recorded_at":"2026-11-24T08:54:07.852577Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',1880575084);
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a20cc3-2eef-7187-b226-80d2a8c69213','2026-11-24 08:54:07.856622','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a20cc3-2eef-7187-b226-80d2a8c69213","correlation_id":"01a20cc3-2eef-7187-b226-80d2a8c69213","recorded_at":"2026-11-24T08:54:07.856622Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',4212333022);
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a20cc3-2ef3-77dd-a32e-24f2bf772bcc','2026-11-24 08:54:07.861403','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20cc3-2ef3-77dd-a32e-24f2bf772bcc","correlation_id":"01a20cc3-2ef3-77dd-a32e-24f2bf772bcc","recorded_at":"2026-11-24T08:54:07.861403Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',297881890);
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
INSERT INTO "store_identity" VALUES(1,'01a20cc3-2e63-722e-bff9-130cfb4d0177',X'C700E3DBFAF71030DB6C324C789A2DAA51FF99556F869AA076CC76DA47E74C9F','2026-11-24 08:54:07.715224');
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
INSERT INTO "sqlite_sequence" VALUES('event_streams',18);
INSERT INTO "sqlite_sequence" VALUES('command_letters',2);
COMMIT;
