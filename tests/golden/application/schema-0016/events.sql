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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a214d4-42c6-7522-9def-6eb1445df7a9','2026-11-25 22:29:44.833265','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a214d4-42c6-7522-9def-6eb1445df7a9","correlation_id":"01a214d4-42c6-7522-9def-6eb1445df7a9","recorded_at":"2026-11-25T22:29:44.833265Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}',2331356632);
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a214d4-4317-70b1-a92d-df1f5ee9596b','2026-11-25 22:29:44.856946','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a214d4-4317-70b1-a92d-df1f5ee9596b","correlation_id":"01a214d4-4317-70b1-a92d-df1f5ee9596b","recorded_at":"2026-11-25T22:29:44.856946Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}',3610091752);
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a214d4-4324-77b8-bc7d-5fc1f79aaf20','2026-11-25 22:29:44.880180','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a214d4-4324-77b8-bc7d-5fc1f79aaf20","correlation_id":"01a214d4-4324-77b8-bc7d-5fc1f79aaf20","recorded_at":"2026-11-25T22:29:44.880180Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}',1742833409);
INSERT INTO "event_streams" VALUES(4,'a4','Account',1,'01a214d4-4333-7772-af53-c19dd2cc43a1','2026-11-25 22:29:44.884310','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a214d4-4333-7772-af53-c19dd2cc43a1","correlation_id":"01a214d4-4333-7772-af53-c19dd2cc43a1","recorded_at":"2026-11-25T22:29:44.884310Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}',2817076233);
INSERT INTO "event_streams" VALUES(5,'a5','Account',1,'01a214d4-433b-7024-94c4-d2264b2ac875','2026-11-25 22:29:44.893529','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a214d4-433b-7024-94c4-d2264b2ac875","correlation_id":"01a214d4-433b-7024-94c4-d2264b2ac875","recorded_at":"2026-11-25T22:29:44.893529Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}',615437761);
INSERT INTO "event_streams" VALUES(6,'a1','Account',2,'bb41ff50-cccb-505a-bd84-445019d2e4ed','2026-11-25 22:29:44.906811','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"bb41ff50-cccb-505a-bd84-445019d2e4ed","correlation_id":"01a214d4-42c6-7522-9def-6eb1445df7a9","recorded_at":"2026-11-25T22:29:44.906811Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',2641029014);
INSERT INTO "event_streams" VALUES(7,'a1','Account',3,'01a214d4-434f-7703-80e6-5c016f9bf84c','2026-11-25 22:29:44.913543','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a214d4-434f-7703-80e6-5c016f9bf84c","correlation_id":"01a214d4-434f-7703-80e6-5c016f9bf84c","recorded_at":"2026-11-25T22:29:44.913543Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}',3570250821);
INSERT INTO "event_streams" VALUES(8,'a1','Account',4,'01a214d4-4360-7321-bfe7-a259a5b0eb82','2026-11-25 22:29:44.929440','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a214d4-4360-7321-bfe7-a259a5b0eb82","correlation_id":"01a214d4-4360-7321-bfe7-a259a5b0eb82","recorded_at":"2026-11-25T22:29:44.929440Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}',1315456703);
INSERT INTO "event_streams" VALUES(9,'a1','Account',5,'01a214d4-4364-727f-8813-53928545ae4e','2026-11-25 22:29:44.935208','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a214d4-4364-727f-8813-53928545ae4e","correlation_id":"01a214d4-4364-727f-8813-53928545ae4e","recorded_at":"2026-11-25T22:29:44.935208Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}',148358758);
INSERT INTO "event_streams" VALUES(10,'a1','Account',6,'01a214d4-436b-73fb-ad79-f73690bcce9b','2026-11-25 22:29:44.942187','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a214d4-436b-73fb-ad79-f73690bcce9b","correlation_id":"01a214d4-436b-73fb-ad79-f73690bcce9b","recorded_at":"2026-11-25T22:29:44.942187Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}',3242606499);
INSERT INTO "event_streams" VALUES(11,'a1','Account',7,'01a214d4-4371-7580-9502-5fec895a5bc0','2026-11-25 22:29:44.947035','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a214d4-4371-7580-9502-5fec895a5bc0","correlation_id":"01a214d4-4371-7580-9502-5fec895a5bc0","recorded_at":"2026-11-25T22:29:44.947035Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}',459955021);
INSERT INTO "event_streams" VALUES(12,'a2','Account',2,'60f0bcc1-156d-57c3-81bb-94aee032bc5f','2026-11-25 22:29:44.955012','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"60f0bcc1-156d-57c3-81bb-94aee032bc5f","correlation_id":"01a214d4-4317-70b1-a92d-df1f5ee9596b","recorded_at":"2026-11-25T22:29:44.955012Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',4223443616);
INSERT INTO "event_streams" VALUES(13,'a1','Account',NULL,'01a214d4-437b-751c-acf0-24e3787d1a15','2026-11-25 22:29:44.964065','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a214d4-437b-751c-acf0-24e3787d1a15","correlation_id":"01a214d4-437b-751c-acf0-24e3787d1a15","recorded_at":"2026-11-25T22:29:44.964065Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}',2243289349);
INSERT INTO "event_streams" VALUES(14,'a3','Account',2,'01a214d4-438b-7269-aea8-0fefb154d7fc','2026-11-25 22:29:44.979342','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a214d4-438b-7269-aea8-0fefb154d7fc","correlation_id":"01a214d4-438b-7269-aea8-0fefb154d7fc","recorded_at":"2026-11-25T22:29:44.979342Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',1597718397);
INSERT INTO "event_streams" VALUES(15,'a4','Account',2,'04e4ac40-3831-5ef7-a918-e2dae1e02125','2026-11-25 22:29:44.987520','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"04e4ac40-3831-5ef7-a918-e2dae1e02125","correlation_id":"01a214d4-4333-7772-af53-c19dd2cc43a1","recorded_at":"2026-11-25T22:29:44.987520Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}',2851453146);
INSERT INTO "event_streams" VALUES(16,'a4','Account',3,'01a214d4-439c-7086-b618-c3611b513e06','2026-11-25 22:29:44.991842','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a214d4-439c-7086-b618-c3611b513e06","correlation_id":"01a214d4-439c-7086-b618-c3611b513e06","recorded_at":"2026-11-25T22:29:44.991842Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}',1729988422);
INSERT INTO "event_streams" VALUES(17,'a5','Account',2,'01a214d4-43b1-7071-9f7e-3a97b2490628','2026-11-25 22:29:45.012674','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a214d4-43b1-7071-9f7e-3a97b2490628","correlation_id":"01a214d4-43b1-7071-9f7e-3a97b2490628","recorded_at":"2026-11-25T22:29:45.012674Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}',4258506315);
INSERT INTO "event_streams" VALUES(18,'a3','Account',3,'1dcdab29-478b-5973-b7bf-35a73d52ab81','2026-11-25 22:29:45.049699','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"1dcdab29-478b-5973-b7bf-35a73d52ab81","correlation_id":"01a214d4-4324-77b8-bc7d-5fc1f79aaf20","recorded_at":"2026-11-25T22:29:45.049699Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}',352815573);
CREATE TABLE headrace_schema (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num)
);
INSERT INTO "headrace_schema" VALUES('0016');
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
INSERT INTO "parked" VALUES(1,'commands:',0,'a2','01a214d4-43b8-73e9-9576-3a4ac6aed5c1','Deposit','holding','2026-11-25 22:29:45.020690',1,'ValueError','the command handler is broken','Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 137, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92464343931633438642D636231632D346539622D383931662D643335663163316635326266B17265706C792D636F7272656C6174696F6ED92430316132313464342D343362382D373365392D393537362D336134626435373462313030A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132313464342D343362382D373365392D393537362D336134616336616564356331222C22636F7272656C6174696F6E5F6964223A2230316132313464342D343362382D373365392D393537362D336134616336616564356331222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "parked" VALUES(2,'commands:',0,'a2','01a214d4-43eb-72f1-8481-293ad8e9b665','Deposit','held','2026-11-25 22:29:45.075395',1,'Held','command 01a214d4-43b8-73e9-9576-3a4ac6aed5c1 of aggregate ''a2'' is parked, and its later commands are held behind it; this one runs once that one is retried or skipped; ask for its result with the same id','',1,NULL,NULL,NULL,NULL,X'83A36B6579A26132A76865616465727382A87265706C792D746FD92464343931633438642D636231632D346539622D383931662D643335663163316635326266B17265706C792D636F7272656C6174696F6ED92430316132313464342D343365622D373266312D383438312D323933623966363431633466A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132313464342D343365622D373266312D383438312D323933616438653962363635222C22636F7272656C6174696F6E5F6964223A2230316132313464342D343365622D373266312D383438312D323933616438653962363635222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
	as_of TEXT, 
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
CREATE TABLE snapshots (
	aggregate_id VARCHAR(255) NOT NULL, 
	aggregate_type VARCHAR(127) NOT NULL, 
	version BIGINT NOT NULL, 
	state_version INTEGER NOT NULL, 
	body TEXT NOT NULL, 
	PRIMARY KEY (aggregate_id)
);
INSERT INTO "snapshots" VALUES('a1','Account',6,1,'{"balance":405}');
INSERT INTO "snapshots" VALUES('a4','Account',3,1,'{"balance":12}');
INSERT INTO "snapshots" VALUES('a3','Account',3,1,'{"balance":12}');
CREATE TABLE store_identity (
	number INTEGER NOT NULL, 
	store_id VARCHAR(36) NOT NULL, 
	seal_key BLOB NOT NULL, 
	made_at DATETIME NOT NULL, 
	PRIMARY KEY (number)
);
INSERT INTO "store_identity" VALUES(1,'01a214d4-426c-72a1-8626-31fce8d0d023',X'143B865D2D967E8CF1BE6152A2FB905E3C7C92F5EE126E6A66A3C2E7B348842E','2026-11-25 22:29:44.684768');
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
