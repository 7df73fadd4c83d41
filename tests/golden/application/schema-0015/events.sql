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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a20e06-eb4d-7666-a334-747a04d0e2a8','2026-11-24 14:47:44.271795','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20e06-eb4d-7666-a334-747a04d0e2a8","correlation_id":"01a20e06-eb4d-7666-a334-747a04d0e2a8","recorded_at":"2026-11-24T14:47:44.271795Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',1705948912);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a20e06-ebce-7375-838f-046a5eccb631','2026-11-24 14:47:44.338095','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20e06-ebce-7375-838f-046a5eccb631","correlation_id":"01a20e06-ebce-7375-838f-046a5eccb631","recorded_at":"2026-11-24T14:47:44.338095Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',3854917687);
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a20e06-ebe1-7474-a94b-eaf7a572c9d3','2026-11-24 14:47:44.356451','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20e06-ebe1-7474-a94b-eaf7a572c9d3","correlation_id":"01a20e06-ebe1-7474-a94b-eaf7a572c9d3","recorded_at":"2026-11-24T14:47:44.356451Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',4212942017);
INSERT INTO "event_streams" VALUES(4,'a1','Account',2,'7def67aa-364a-517a-8b4b-58358f0f987d','2026-11-24 14:47:44.368357','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"7def67aa-364a-517a-8b4b-58358f0f987d","correlation_id":"01a20e06-eb4d-7666-a334-747a04d0e2a8","recorded_at":"2026-11-24T14:47:44.368357Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',2299363474);
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a20e06-ec02-77e6-8b6a-50e79d1f97be','2026-11-24 14:47:44.403076','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20e06-ec02-77e6-8b6a-50e79d1f97be","correlation_id":"01a20e06-ec02-77e6-8b6a-50e79d1f97be","recorded_at":"2026-11-24T14:47:44.403076Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',67661293);
INSERT INTO "event_streams" VALUES(6,'a5','Account',1,'01a20e06-ec1a-705e-b09b-3fa8dce9c5c0','2026-11-24 14:47:44.411675','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20e06-ec1a-705e-b09b-3fa8dce9c5c0","correlation_id":"01a20e06-ec1a-705e-b09b-3fa8dce9c5c0","recorded_at":"2026-11-24T14:47:44.411675Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',681707733);
INSERT INTO "event_streams" VALUES(7,'a1','Account',3,'01a20e06-ec21-7603-994f-fb3247698e50','2026-11-24 14:47:44.420457','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20e06-ec21-7603-994f-fb3247698e50","correlation_id":"01a20e06-ec21-7603-994f-fb3247698e50","recorded_at":"2026-11-24T14:47:44.420457Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',2846934823);
INSERT INTO "event_streams" VALUES(8,'a2','Account',2,'c343cf18-16f0-50ac-89f4-932109b2ef84','2026-11-24 14:47:44.426330','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"c343cf18-16f0-50ac-89f4-932109b2ef84","correlation_id":"01a20e06-ebce-7375-838f-046a5eccb631","recorded_at":"2026-11-24T14:47:44.426330Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',4073683843);
INSERT INTO "event_streams" VALUES(9,'a3','Account',2,'d7a953fe-b9de-5f76-86c7-70679d4efc13','2026-11-24 14:47:44.426386','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"d7a953fe-b9de-5f76-86c7-70679d4efc13","correlation_id":"01a20e06-ebe1-7474-a94b-eaf7a572c9d3","recorded_at":"2026-11-24T14:47:44.426386Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1398654493);
INSERT INTO "event_streams" VALUES(10,'a1','Account',4,'01a20e06-ec39-7156-8a81-f39d3e917ef2','2026-11-24 14:47:44.445087','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20e06-ec39-7156-8a81-f39d3e917ef2","correlation_id":"01a20e06-ec39-7156-8a81-f39d3e917ef2","recorded_at":"2026-11-24T14:47:44.445087Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',1774033945);
INSERT INTO "event_streams" VALUES(11,'a1','Account',5,'01a20e06-ec4a-729c-a587-349578f415c1','2026-11-24 14:47:44.460320','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20e06-ec4a-729c-a587-349578f415c1","correlation_id":"01a20e06-ec4a-729c-a587-349578f415c1","recorded_at":"2026-11-24T14:47:44.460320Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',2101429504);
INSERT INTO "event_streams" VALUES(12,'a1','Account',6,'01a20e06-ec66-74c9-9a19-cc02be5b61f1','2026-11-24 14:47:44.487391','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20e06-ec66-74c9-9a19-cc02be5b61f1","correlation_id":"01a20e06-ec66-74c9-9a19-cc02be5b61f1","recorded_at":"2026-11-24T14:47:44.487391Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',51832117);
INSERT INTO "event_streams" VALUES(13,'a1','Account',7,'01a20e06-ec6b-7091-8a66-46e24865b399','2026-11-24 14:47:44.493641','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20e06-ec6b-7091-8a66-46e24865b399","correlation_id":"01a20e06-ec6b-7091-8a66-46e24865b399","recorded_at":"2026-11-24T14:47:44.493641Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',3864115466);
INSERT INTO "event_streams" VALUES(14,'a1','Account',NULL,'01a20e06-ec73-76fe-bb94-60cfa6ee2534','2026-11-24 14:47:44.501451','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20e06-ec73-76fe-bb94-60cfa6ee2534","correlation_id":"01a20e06-ec73-76fe-bb94-60cfa6ee2534","recorded_at":"2026-11-24T14:47:44.501451Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',3517279197);
INSERT INTO "event_streams" VALUES(15,'a4','Account',2,'19a0e303-0749-5284-a6a5-43e8ef58eaaa','2026-11-24 14:47:44.513700','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"19a0e303-0749-5284-a6a5-43e8ef58eaaa","correlation_id":"01a20e06-ec02-77e6-8b6a-50e79d1f97be","recorded_at":"2026-11-24T14:47:44.513700Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1171398610);
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'01a20e06-ec7e-704f-89dd-a382ed22dfa1','2026-11-24 14:47:44.514819','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a20e06-ec7e-704f-89dd-a382ed22dfa1","correlation_id":"01a20e06-ec7e-704f-89dd-a382ed22dfa1","recorded_at":"2026-11-24T14:47:44.514819Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',2274701853);
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a20e06-ec9d-7071-b384-aba39dd58ee6','2026-11-24 14:47:44.545820','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a20e06-ec9d-7071-b384-aba39dd58ee6","correlation_id":"01a20e06-ec9d-7071-b384-aba39dd58ee6","recorded_at":"2026-11-24T14:47:44.545820Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',3399254479);
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a20e06-ecab-71f3-bbce-0d3e658550d3','2026-11-24 14:47:44.556538','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20e06-ecab-71f3-bbce-0d3e658550d3","correlation_id":"01a20e06-ecab-71f3-bbce-0d3e658550d3","recorded_at":"2026-11-24T14:47:44.556538Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',3588980494);
CREATE TABLE headrace_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "headrace_schema" VALUES('0015');
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
INSERT INTO "parked" VALUES(1,'commands:',0,'a2','01a20e06-ecb2-72e0-a1c5-3c6fb164bd8f','Deposit','holding','2026-11-24 14:47:44.569414',1,'ValueError','the command handler is broken','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92436633861383631342D346166342D343634662D626237342D646630303730313166643236B17265706C792D636F7272656C6174696F6ED92430316132306530362D656362322D373265302D613163352D336337303561396235663834A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306530362D656362322D373265302D613163352D336336666231363462643866222C22636F7272656C6174696F6E5F6964223A2230316132306530362D656362322D373265302D613163352D336336666231363462643866222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "parked" VALUES(2,'commands:',0,'a2','01a20e06-ecc0-75c2-be7e-7a372324cf6d','Deposit','held','2026-11-24 14:47:44.578566',1,'Held','command 01a20e06-ecb2-72e0-a1c5-3c6fb164bd8f of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id','',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92436633861383631342D346166342D343634662D626237342D646630303730313166643236B17265706C792D636F7272656C6174696F6ED92430316132306530362D656363302D373563322D626537652D376133383136626366616632A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306530362D656363302D373563322D626537652D376133373233323463663664222C22636F7272656C6174696F6E5F6964223A2230316132306530362D656363302D373563322D626537652D376133373233323463663664222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
INSERT INTO "store_identity" VALUES(1,'01a20e06-eb07-7172-8db7-8d5cebe989c2',X'B95B38131810F93B482F22C796803EE82B3EB7D5EF3071871B81F1319ACDD6A1','2026-11-24 14:47:44.136030');
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('parked',2);
INSERT INTO "sqlite_sequence" VALUES('event_streams',18);
COMMIT;
