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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a22163-51c3-7608-a599-3d7597c78fe1','2026-11-28 09:01:26.893824','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a22163-51c3-7608-a599-3d7597c78fe1","correlation_id":"01a22163-51c3-7608-a599-3d7597c78fe1","recorded_at":"2026-11-28T09:01:26.893824Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',1679688484);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a22163-5216-76c8-b3c7-1e0b8989a55b','2026-11-28 09:01:26.951040','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a22163-5216-76c8-b3c7-1e0b8989a55b","correlation_id":"01a22163-5216-76c8-b3c7-1e0b8989a55b","recorded_at":"2026-11-28T09:01:26.951040Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',2111139264);
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a22163-522b-7370-8118-3d618bd8cb91','2026-11-28 09:01:26.972508','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a22163-522b-7370-8118-3d618bd8cb91","correlation_id":"01a22163-522b-7370-8118-3d618bd8cb91","recorded_at":"2026-11-28T09:01:26.972508Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',2963322564);
INSERT INTO "event_streams" VALUES(4,'a1','Account',2,'e9808656-0fda-5daf-98c6-4007366c50ff','2026-11-28 09:01:26.982864','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"e9808656-0fda-5daf-98c6-4007366c50ff","correlation_id":"01a22163-51c3-7608-a599-3d7597c78fe1","recorded_at":"2026-11-28T09:01:26.982864Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',3794918901);
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a22163-524b-72b3-a54f-7eb25390a30b','2026-11-28 09:01:26.994392','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a22163-524b-72b3-a54f-7eb25390a30b","correlation_id":"01a22163-524b-72b3-a54f-7eb25390a30b","recorded_at":"2026-11-28T09:01:26.994392Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',1159615959);
INSERT INTO "event_streams" VALUES(6,'a5','Account',1,'01a22163-525c-75f0-94c7-d45d68fdb928','2026-11-28 09:01:27.012221','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a22163-525c-75f0-94c7-d45d68fdb928","correlation_id":"01a22163-525c-75f0-94c7-d45d68fdb928","recorded_at":"2026-11-28T09:01:27.012221Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',730321166);
INSERT INTO "event_streams" VALUES(7,'a1','Account',3,'01a22163-5269-76fd-a8b6-a09137f35d14','2026-11-28 09:01:27.087321','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a22163-5269-76fd-a8b6-a09137f35d14","correlation_id":"01a22163-5269-76fd-a8b6-a09137f35d14","recorded_at":"2026-11-28T09:01:27.087321Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',1028086405);
INSERT INTO "event_streams" VALUES(8,'a1','Account',4,'01a22163-52bc-7593-892d-915353aa5765','2026-11-28 09:01:27.112219','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a22163-52bc-7593-892d-915353aa5765","correlation_id":"01a22163-52bc-7593-892d-915353aa5765","recorded_at":"2026-11-28T09:01:27.112219Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',3492069400);
INSERT INTO "event_streams" VALUES(9,'a1','Account',5,'01a22163-52e4-7477-b7aa-146096695de1','2026-11-28 09:01:27.152573','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a22163-52e4-7477-b7aa-146096695de1","correlation_id":"01a22163-52e4-7477-b7aa-146096695de1","recorded_at":"2026-11-28T09:01:27.152573Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',826515622);
INSERT INTO "event_streams" VALUES(10,'a2','Account',2,'85ca5667-87f4-598b-8c4d-04de104e7101','2026-11-28 09:01:27.163894','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"85ca5667-87f4-598b-8c4d-04de104e7101","correlation_id":"01a22163-5216-76c8-b3c7-1e0b8989a55b","recorded_at":"2026-11-28T09:01:27.163894Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',1991004265);
INSERT INTO "event_streams" VALUES(11,'a1','Account',6,'01a22163-5305-742b-8d02-dc24162c4132','2026-11-28 09:01:27.186221','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a22163-5305-742b-8d02-dc24162c4132","correlation_id":"01a22163-5305-742b-8d02-dc24162c4132","recorded_at":"2026-11-28T09:01:27.186221Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',260077665);
INSERT INTO "event_streams" VALUES(12,'a1','Account',7,'01a22163-531d-7792-9dd3-1f4e04526136','2026-11-28 09:01:27.200487','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a22163-531d-7792-9dd3-1f4e04526136","correlation_id":"01a22163-531d-7792-9dd3-1f4e04526136","recorded_at":"2026-11-28T09:01:27.200487Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',87847023);
INSERT INTO "event_streams" VALUES(13,'a1','Account',NULL,'01a22163-532d-71c0-852f-3671f3d9f603','2026-11-28 09:01:27.217899','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a22163-532d-71c0-852f-3671f3d9f603","correlation_id":"01a22163-532d-71c0-852f-3671f3d9f603","recorded_at":"2026-11-28T09:01:27.217899Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',3602681773);
INSERT INTO "event_streams" VALUES(14,'a4','Account',2,'e3de9311-de08-5a21-a618-2a4da446b46d','2026-11-28 09:01:27.224518','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"e3de9311-de08-5a21-a618-2a4da446b46d","correlation_id":"01a22163-524b-72b3-a54f-7eb25390a30b","recorded_at":"2026-11-28T09:01:27.224518Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',3339794852);
INSERT INTO "event_streams" VALUES(15,'a3','Account',2,'01a22163-5342-764b-a984-c3a7a134defd','2026-11-28 09:01:27.239587','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a22163-5342-764b-a984-c3a7a134defd","correlation_id":"01a22163-5342-764b-a984-c3a7a134defd","recorded_at":"2026-11-28T09:01:27.239587Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',3092662645);
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'50e20249-005e-532b-b2dc-86b9a1ab520b','2026-11-28 09:01:27.262017','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"50e20249-005e-532b-b2dc-86b9a1ab520b","correlation_id":"01a22163-522b-7370-8118-3d618bd8cb91","recorded_at":"2026-11-28T09:01:27.262017Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}',2624602600);
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a22163-535a-74a7-b0c8-cfd178d07eba','2026-11-28 09:01:27.262663','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a22163-535a-74a7-b0c8-cfd178d07eba","correlation_id":"01a22163-535a-74a7-b0c8-cfd178d07eba","recorded_at":"2026-11-28T09:01:27.262663Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',2606413843);
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a22163-5376-7604-b71b-8c949979c0bd','2026-11-28 09:01:27.296058','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a22163-5376-7604-b71b-8c949979c0bd","correlation_id":"01a22163-5376-7604-b71b-8c949979c0bd","recorded_at":"2026-11-28T09:01:27.296058Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',425147630);
CREATE TABLE headrace_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "headrace_schema" VALUES('0018');
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
INSERT INTO "parked" VALUES(1,'commands:',0,'a2','01a22163-5384-7637-b943-8ef460ebfd1a','Deposit','holding','2026-11-28 09:01:27.311194',1,'ValueError','the command handler is broken','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92433616562643737342D306563622D343635372D616138312D626439363736376537656363B17265706C792D636F7272656C6174696F6ED92430316132323136332D353338342D373633372D623934332D386566356230376338386235A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132323136332D353338342D373633372D623934332D386566343630656266643161222C22636F7272656C6174696F6E5F6964223A2230316132323136332D353338342D373633372D623934332D386566343630656266643161222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "parked" VALUES(2,'commands:',0,'a2','01a22163-53a6-7308-a989-b71c6f19ae61','Deposit','held','2026-11-28 09:01:27.336441',1,'Held','command 01a22163-5384-7637-b943-8ef460ebfd1a of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id','',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92433616562643737342D306563622D343635372D616138312D626439363736376537656363B17265706C792D636F7272656C6174696F6ED92430316132323136332D353361362D373330382D613938392D623731646231346537366232A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132323136332D353361362D373330382D613938392D623731633666313961653631222C22636F7272656C6174696F6E5F6964223A2230316132323136332D353361362D373330382D613938392D623731633666313961653631222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
INSERT INTO "store_identity" VALUES(1,'01a22163-5113-7751-8a75-40ee06ed86dd',X'2BA416E87C2D1838B2383F66CA519667C7FCACF8CD5E9A6DB88DDC3F4B86C81C','2026-11-28 09:01:26.675680');
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
