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
	message BLOB NOT NULL, 
	CONSTRAINT uq_command_letters_command UNIQUE (aggregate_id, command_id)
);
INSERT INTO "command_letters" VALUES(1,'a2','01a20cbf-a986-7104-9575-444a254eb45e','Deposit','holding','2026-11-24 08:50:17.096844',1,'ValueError','the command handler is broken',X'83A36B6579A26132A76865616465727382A87265706C792D746FD92466646331363431322D366166352D346663392D386366612D663463356365646230323138B17265706C792D636F7272656C6174696F6ED92430316132306362662D613938362D373130342D393537352D343434626166333739643638A4626F6479C4BC7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306362662D613938362D373130342D393537352D343434613235346562343565222C22636F7272656C6174696F6E5F6964223A2230316132306362662D613938362D373130342D393537352D343434613235346562343565222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A31337D2C226974656D73223A7B7D7D');
INSERT INTO "command_letters" VALUES(2,'a2','01a20cbf-a98c-7019-8ee6-031b5adf204e','Deposit','held','2026-11-24 08:50:17.102623',1,'Held','command 01a20cbf-a986-7104-9575-444a254eb45e of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id',X'83A36B6579A26132A76865616465727382A87265706C792D746FD92466646331363431322D366166352D346663392D386366612D663463356365646230323138B17265706C792D636F7272656C6174696F6ED92430316132306362662D613938632D373031392D386565362D303331633934663931343639A4626F6479C4BB7B226E616D65223A224465706F736974222C2276657273696F6E223A312C22636F6D6D616E645F6964223A2230316132306362662D613938632D373031392D386565362D303331623561646632303465222C22636F7272656C6174696F6E5F6964223A2230316132306362662D613938632D373031392D386565362D303331623561646632303465222C2264617461223A7B226163636F756E745F6964223A226132222C22616D6F756E74223A317D2C226974656D73223A7B7D7D');
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
INSERT INTO "event_streams" VALUES(1,'a1','Account',1,'01a20cbf-a925-7673-bb81-0507b6266405','2026-11-24 08:50:17.019321','{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20cbf-a925-7673-bb81-0507b6266405","correlation_id":"01a20cbf-a925-7673-bb81-0507b6266405","recorded_at":"2026-11-24T08:50:17.019321Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(2,'a2','Account',1,'01a20cbf-a941-74c5-a00e-743d6d016d09','2026-11-24 08:50:17.027454','{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20cbf-a941-74c5-a00e-743d6d016d09","correlation_id":"01a20cbf-a941-74c5-a00e-743d6d016d09","recorded_at":"2026-11-24T08:50:17.027454Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(3,'a3','Account',1,'01a20cbf-a948-7296-9487-f6016c773ffd','2026-11-24 08:50:17.042751','{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20cbf-a948-7296-9487-f6016c773ffd","correlation_id":"01a20cbf-a948-7296-9487-f6016c773ffd","recorded_at":"2026-11-24T08:50:17.042751Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(4,'a1','Account',2,'569fb09a-2416-536a-b15e-82a6e6668cb9','2026-11-24 08:50:17.042823','{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"569fb09a-2416-536a-b15e-82a6e6668cb9","correlation_id":"01a20cbf-a925-7673-bb81-0507b6266405","recorded_at":"2026-11-24T08:50:17.042823Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(5,'a4','Account',1,'01a20cbf-a957-7030-ba80-e42800ef06e9','2026-11-24 08:50:17.048487','{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20cbf-a957-7030-ba80-e42800ef06e9","correlation_id":"01a20cbf-a957-7030-ba80-e42800ef06e9","recorded_at":"2026-11-24T08:50:17.048487Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(6,'a5','Account',1,'01a20cbf-a95d-7522-8d20-42506610ae46','2026-11-24 08:50:17.054026','{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20cbf-a95d-7522-8d20-42506610ae46","correlation_id":"01a20cbf-a95d-7522-8d20-42506610ae46","recorded_at":"2026-11-24T08:50:17.054026Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(7,'a2','Account',2,'d82fdd9b-ec77-542b-9837-c54e49e39af5','2026-11-24 08:50:17.055126','{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"d82fdd9b-ec77-542b-9837-c54e49e39af5","correlation_id":"01a20cbf-a941-74c5-a00e-743d6d016d09","recorded_at":"2026-11-24T08:50:17.055126Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(8,'a3','Account',2,'cc0e4310-df5c-5a00-a502-475e74d3055b','2026-11-24 08:50:17.055170','{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"cc0e4310-df5c-5a00-a502-475e74d3055b","correlation_id":"01a20cbf-a948-7296-9487-f6016c773ffd","recorded_at":"2026-11-24T08:50:17.055170Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(9,'a1','Account',3,'01a20cbf-a963-7661-9077-2838495f9bb9','2026-11-24 08:50:17.060353','{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20cbf-a963-7661-9077-2838495f9bb9","correlation_id":"01a20cbf-a963-7661-9077-2838495f9bb9","recorded_at":"2026-11-24T08:50:17.060353Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(10,'a1','Account',4,'01a20cbf-a967-746a-8407-40026734042b','2026-11-24 08:50:17.064174','{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20cbf-a967-746a-8407-40026734042b","correlation_id":"01a20cbf-a967-746a-8407-40026734042b","recorded_at":"2026-11-24T08:50:17.064174Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(11,'a1','Account',5,'01a20cbf-a96b-72e8-8636-bf9d8f232ae1','2026-11-24 08:50:17.068143','{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20cbf-a96b-72e8-8636-bf9d8f232ae1","correlation_id":"01a20cbf-a96b-72e8-8636-bf9d8f232ae1","recorded_at":"2026-11-24T08:50:17.068143Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(12,'a1','Account',6,'01a20cbf-a96e-71fc-a8c0-ea8052210aab','2026-11-24 08:50:17.071703','{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20cbf-a96e-71fc-a8c0-ea8052210aab","correlation_id":"01a20cbf-a96e-71fc-a8c0-ea8052210aab","recorded_at":"2026-11-24T08:50:17.071703Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(13,'a4','Account',2,'2188f76e-0a27-5e2f-b639-f40f0a669487','2026-11-24 08:50:17.072847','{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"2188f76e-0a27-5e2f-b639-f40f0a669487","correlation_id":"01a20cbf-a957-7030-ba80-e42800ef06e9","recorded_at":"2026-11-24T08:50:17.072847Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(14,'a1','Account',7,'01a20cbf-a975-716e-b99f-e57bbecf5857','2026-11-24 08:50:17.078174','{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20cbf-a975-716e-b99f-e57bbecf5857","correlation_id":"01a20cbf-a975-716e-b99f-e57bbecf5857","recorded_at":"2026-11-24T08:50:17.078174Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(15,'a1','Account',NULL,'01a20cbf-a977-702b-aa0c-ff51141cde46','2026-11-24 08:50:17.080176','{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20cbf-a977-702b-aa0c-ff51141cde46","correlation_id":"01a20cbf-a977-702b-aa0c-ff51141cde46","recorded_at":"2026-11-24T08:50:17.080176Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}');
INSERT INTO "event_streams" VALUES(16,'a3','Account',3,'01a20cbf-a97b-7453-a853-96938366bd9d','2026-11-24 08:50:17.083893','{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"01a20cbf-a97b-7453-a853-96938366bd9d","correlation_id":"01a20cbf-a97b-7453-a853-96938366bd9d","recorded_at":"2026-11-24T08:50:17.083893Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(17,'a4','Account',3,'01a20cbf-a97d-703b-89c8-d83c087009fa','2026-11-24 08:50:17.086478','{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"01a20cbf-a97d-703b-89c8-d83c087009fa","correlation_id":"01a20cbf-a97d-703b-89c8-d83c087009fa","recorded_at":"2026-11-24T08:50:17.086478Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":12}}],"rejection":null}');
INSERT INTO "event_streams" VALUES(18,'a5','Account',2,'01a20cbf-a982-72bc-a101-a202c1701e57','2026-11-24 08:50:17.091135','{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20cbf-a982-72bc-a101-a202c1701e57","correlation_id":"01a20cbf-a982-72bc-a101-a202c1701e57","recorded_at":"2026-11-24T08:50:17.091135Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}');
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
CREATE INDEX ix_process_commands_instance ON process_commands (process, instance, number);
CREATE INDEX ix_process_commands_unsent ON process_commands (process, sent);
CREATE INDEX ix_process_instances_ended ON process_instances (process, ended, changed_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('event_streams',18);
INSERT INTO "sqlite_sequence" VALUES('command_letters',2);
COMMIT;
