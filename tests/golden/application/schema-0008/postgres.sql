SELECT pg_catalog.set_config('search_path', '', false);
CREATE TABLE public.balances__1 (
    account_id character varying(255) NOT NULL COLLATE pg_catalog."C",
    balance bigint NOT NULL
);
CREATE VIEW public.balances AS
 SELECT account_id,
    balance
   FROM public.balances__1;
CREATE TABLE public.command_letters (
    number bigint NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL,
    name text NOT NULL,
    state character varying(7) NOT NULL,
    parked_at timestamp with time zone NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    sentence text NOT NULL,
    message bytea NOT NULL
);
CREATE SEQUENCE public.command_letters_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.command_letters_number_seq OWNED BY public.command_letters.number;
CREATE TABLE public.event_streams (
    "position" bigint NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    aggregate_type character varying(127) NOT NULL,
    version bigint,
    command_id character varying(255) NOT NULL,
    recorded_at timestamp with time zone NOT NULL,
    body text NOT NULL
);
CREATE SEQUENCE public.event_streams_position_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.event_streams_position_seq OWNED BY public.event_streams."position";
CREATE TABLE public.headrace_schema (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.process_commands (
    process character varying(127) NOT NULL,
    command_id character varying(36) NOT NULL,
    instance character varying(255) NOT NULL,
    number bigint NOT NULL,
    name character varying(127) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    body text NOT NULL,
    due timestamp with time zone,
    made_at timestamp with time zone NOT NULL,
    sent boolean NOT NULL,
    refused text
);
CREATE TABLE public.process_instances (
    process character varying(127) NOT NULL,
    instance character varying(255) NOT NULL,
    state text,
    state_version integer NOT NULL,
    undo text NOT NULL,
    ended boolean NOT NULL,
    began_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    last_event character varying(127) NOT NULL,
    last_aggregate_id character varying(255) NOT NULL,
    seen bigint NOT NULL,
    sent bigint NOT NULL,
    error text,
    parked_at timestamp with time zone,
    retries integer NOT NULL
);
CREATE TABLE public.process_journal (
    process character varying(127) NOT NULL,
    instance character varying(255) NOT NULL,
    number bigint NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL,
    outcome character varying(8) NOT NULL
);
CREATE TABLE public.process_versions (
    process character varying(127) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE public.processes (
    name character varying(127) NOT NULL
);
CREATE TABLE public.projection_letters (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    topic character varying(127) NOT NULL,
    queue_id integer NOT NULL,
    message_offset bigint NOT NULL,
    parked_at timestamp with time zone NOT NULL,
    held bigint NOT NULL,
    retries integer NOT NULL,
    error text NOT NULL
);
CREATE TABLE public.projection_offsets (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    topic character varying(127) NOT NULL,
    queue_id integer NOT NULL,
    next_offset bigint NOT NULL
);
CREATE TABLE public.projection_versions (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    version bigint NOT NULL
);
CREATE TABLE public.projections (
    name character varying(40) NOT NULL,
    generation integer NOT NULL,
    previous_generation integer,
    fingerprint character varying(64) NOT NULL,
    rebuild_generation integer,
    rebuild_owner character varying(64),
    rebuild_started_at timestamp with time zone,
    paused_at timestamp with time zone
);
CREATE TABLE public.snapshots (
    aggregate_id character varying(255) NOT NULL,
    aggregate_type character varying(127) NOT NULL,
    version bigint NOT NULL,
    state_version integer NOT NULL,
    body text NOT NULL
);
ALTER TABLE ONLY public.command_letters ALTER COLUMN number SET DEFAULT nextval('public.command_letters_number_seq'::regclass);
ALTER TABLE ONLY public.event_streams ALTER COLUMN "position" SET DEFAULT nextval('public.event_streams_position_seq'::regclass);
INSERT INTO public.balances__1 VALUES ('a1', 505);
INSERT INTO public.balances__1 VALUES ('a2', 5);
INSERT INTO public.balances__1 VALUES ('a5', 7);
INSERT INTO public.balances__1 VALUES ('a4', 12);
INSERT INTO public.command_letters VALUES (1, 'a2', '01a20cbf-b8e3-74b1-b4dd-8637a51c9a7c', 'Deposit', 'holding', '2026-11-24 08:50:21.034806+00', 1, 'ValueError', 'the command handler is broken', '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92432343531393437352d363935612d343432662d393431632d633065633937323462333765b17265706c792d636f7272656c6174696f6ed92430316132306362662d623865332d373462312d623464642d383633383533396236353166a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306362662d623865332d373462312d623464642d383633376135316339613763222c22636f7272656c6174696f6e5f6964223a2230316132306362662d623865332d373462312d623464642d383633376135316339613763222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d');
INSERT INTO public.command_letters VALUES (2, 'a2', '01a20cbf-b8ef-776b-a32f-b0d23f1b9b56', 'Deposit', 'held', '2026-11-24 08:50:21.04086+00', 1, 'Held', 'command 01a20cbf-b8e3-74b1-b4dd-8637a51c9a7c of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id', '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92432343531393437352d363935612d343432662d393431632d633065633937323462333765b17265706c792d636f7272656c6174696f6ed92430316132306362662d623865662d373736622d613332662d623064333963383838333337a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306362662d623865662d373736622d613332662d623064323366316239623536222c22636f7272656c6174696f6e5f6964223a2230316132306362662d623865662d373736622d613332662d623064323366316239623536222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d');
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a20cbf-b864-7631-98b2-c3635fedc7f2', '2026-11-24 08:50:20.917602+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20cbf-b864-7631-98b2-c3635fedc7f2","correlation_id":"01a20cbf-b864-7631-98b2-c3635fedc7f2","recorded_at":"2026-11-24T08:50:20.917602Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a20cbf-b885-7491-8bb3-481eb8a8c017', '2026-11-24 08:50:20.934438+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20cbf-b885-7491-8bb3-481eb8a8c017","correlation_id":"01a20cbf-b885-7491-8bb3-481eb8a8c017","recorded_at":"2026-11-24T08:50:20.934438Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a20cbf-b889-764d-be31-901e6d480597', '2026-11-24 08:50:20.943596+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20cbf-b889-764d-be31-901e6d480597","correlation_id":"01a20cbf-b889-764d-be31-901e6d480597","recorded_at":"2026-11-24T08:50:20.943596Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a20cbf-b899-7013-b9f0-1869f73d6c9c', '2026-11-24 08:50:20.954244+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20cbf-b899-7013-b9f0-1869f73d6c9c","correlation_id":"01a20cbf-b899-7013-b9f0-1869f73d6c9c","recorded_at":"2026-11-24T08:50:20.954244Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (5, 'a5', 'Account', 1, '01a20cbf-b8a2-705b-bdc7-a092801b0e31', '2026-11-24 08:50:20.963211+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20cbf-b8a2-705b-bdc7-a092801b0e31","correlation_id":"01a20cbf-b8a2-705b-bdc7-a092801b0e31","recorded_at":"2026-11-24T08:50:20.963211Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (6, 'a1', 'Account', 2, 'eed8128f-41bd-542a-8462-83dc26700a93', '2026-11-24 08:50:20.969251+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"eed8128f-41bd-542a-8462-83dc26700a93","correlation_id":"01a20cbf-b864-7631-98b2-c3635fedc7f2","recorded_at":"2026-11-24T08:50:20.969251Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, '01a20cbf-b8aa-76f6-a6c4-e01a61f36d5c', '2026-11-24 08:50:20.972227+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"01a20cbf-b8aa-76f6-a6c4-e01a61f36d5c","correlation_id":"01a20cbf-b8aa-76f6-a6c4-e01a61f36d5c","recorded_at":"2026-11-24T08:50:20.972227Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":105}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a20cbf-b8b3-720c-bcf8-00af6b9805e9', '2026-11-24 08:50:20.981747+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20cbf-b8b3-720c-bcf8-00af6b9805e9","correlation_id":"01a20cbf-b8b3-720c-bcf8-00af6b9805e9","recorded_at":"2026-11-24T08:50:20.981747Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a20cbf-b8ba-714d-8814-99a8c92ef8a8', '2026-11-24 08:50:20.987712+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20cbf-b8ba-714d-8814-99a8c92ef8a8","correlation_id":"01a20cbf-b8ba-714d-8814-99a8c92ef8a8","recorded_at":"2026-11-24T08:50:20.987712Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a20cbf-b8c0-731c-be9b-99bd68cbf42f', '2026-11-24 08:50:20.9942+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20cbf-b8c0-731c-be9b-99bd68cbf42f","correlation_id":"01a20cbf-b8c0-731c-be9b-99bd68cbf42f","recorded_at":"2026-11-24T08:50:20.994200Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a20cbf-b8c5-703f-ad25-db04b3292d1a', '2026-11-24 08:50:20.998824+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20cbf-b8c5-703f-ad25-db04b3292d1a","correlation_id":"01a20cbf-b8c5-703f-ad25-db04b3292d1a","recorded_at":"2026-11-24T08:50:20.998824Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a20cbf-b8ca-7643-8734-400ded258ce3', '2026-11-24 08:50:21.003658+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20cbf-b8ca-7643-8734-400ded258ce3","correlation_id":"01a20cbf-b8ca-7643-8734-400ded258ce3","recorded_at":"2026-11-24T08:50:21.003658Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}');
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a20cbf-b8cf-7403-bee6-aa1049e6eb15', '2026-11-24 08:50:21.00807+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a20cbf-b8cf-7403-bee6-aa1049e6eb15","correlation_id":"01a20cbf-b8cf-7403-bee6-aa1049e6eb15","recorded_at":"2026-11-24T08:50:21.008070Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (14, 'a2', 'Account', 2, '47ce9ff6-de65-5b48-9be1-27a2133ac8c2', '2026-11-24 08:50:21.009054+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"47ce9ff6-de65-5b48-9be1-27a2133ac8c2","correlation_id":"01a20cbf-b885-7491-8bb3-481eb8a8c017","recorded_at":"2026-11-24T08:50:21.009054Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (15, 'a4', 'Account', 2, '01a20cbf-b8d4-7394-9e5b-f52ea9e6faec', '2026-11-24 08:50:21.014695+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a20cbf-b8d4-7394-9e5b-f52ea9e6faec","correlation_id":"01a20cbf-b8d4-7394-9e5b-f52ea9e6faec","recorded_at":"2026-11-24T08:50:21.014695Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (16, 'a5', 'Account', 2, '01a20cbf-b8dc-7736-9a66-98d52d2c280c', '2026-11-24 08:50:21.022553+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20cbf-b8dc-7736-9a66-98d52d2c280c","correlation_id":"01a20cbf-b8dc-7736-9a66-98d52d2c280c","recorded_at":"2026-11-24T08:50:21.022553Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, '156fdb4d-f0bd-56d0-b2a0-440988bbc550', '2026-11-24 08:50:21.028445+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"156fdb4d-f0bd-56d0-b2a0-440988bbc550","correlation_id":"01a20cbf-b899-7013-b9f0-1869f73d6c9c","recorded_at":"2026-11-24T08:50:21.028445Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}');
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, '6beed9b1-f4ba-5945-b3f1-920e12f6c782', '2026-11-24 08:50:21.053449+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"6beed9b1-f4ba-5945-b3f1-920e12f6c782","correlation_id":"01a20cbf-b889-764d-be31-901e6d480597","recorded_at":"2026-11-24T08:50:21.053449Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}');
INSERT INTO public.headrace_schema VALUES ('0008');
INSERT INTO public.process_commands VALUES ('greetings', 'eed8128f-41bd-542a-8462-83dc26700a93', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"eed8128f-41bd-542a-8462-83dc26700a93","correlation_id":"01a20cbf-b864-7631-98b2-c3635fedc7f2","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-24 08:50:20.931977+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '13067e1d-16b9-5553-8678-99e0a4fdccf3', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"13067e1d-16b9-5553-8678-99e0a4fdccf3","correlation_id":"01a20cbf-b864-7631-98b2-c3635fedc7f2","data":{"account_id":"a1"},"items":{}}', '2027-09-20 08:50:20.917602+00', '2026-11-24 08:50:20.931977+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '47ce9ff6-de65-5b48-9be1-27a2133ac8c2', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"47ce9ff6-de65-5b48-9be1-27a2133ac8c2","correlation_id":"01a20cbf-b885-7491-8bb3-481eb8a8c017","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-24 08:50:20.99447+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'e3a1bd15-e320-5fab-bdc8-527286bedc19', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"e3a1bd15-e320-5fab-bdc8-527286bedc19","correlation_id":"01a20cbf-b885-7491-8bb3-481eb8a8c017","data":{"account_id":"a2"},"items":{}}', '2027-09-20 08:50:20.934438+00', '2026-11-24 08:50:20.99447+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '156fdb4d-f0bd-56d0-b2a0-440988bbc550', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"156fdb4d-f0bd-56d0-b2a0-440988bbc550","correlation_id":"01a20cbf-b899-7013-b9f0-1869f73d6c9c","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-24 08:50:21.016311+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '75f6e21f-b29d-57e0-b883-7f449b1c8fc7', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"75f6e21f-b29d-57e0-b883-7f449b1c8fc7","correlation_id":"01a20cbf-b899-7013-b9f0-1869f73d6c9c","data":{"account_id":"a4"},"items":{}}', '2027-09-20 08:50:20.954244+00', '2026-11-24 08:50:21.016311+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '6beed9b1-f4ba-5945-b3f1-920e12f6c782', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"6beed9b1-f4ba-5945-b3f1-920e12f6c782","correlation_id":"01a20cbf-b889-764d-be31-901e6d480597","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-24 08:50:21.046887+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '27f1d4af-69b7-5153-af4e-e2d8dfd860c7', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"27f1d4af-69b7-5153-af4e-e2d8dfd860c7","correlation_id":"01a20cbf-b889-764d-be31-901e6d480597","data":{"account_id":"a3"},"items":{}}', '2027-09-20 08:50:20.943596+00', '2026-11-24 08:50:21.046887+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-24 08:50:20.931977+00', '2026-11-24 08:50:20.931977+00', 'Opened', 'a1', 1, 2, NULL, NULL, 0);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-24 08:50:20.99447+00', '2026-11-24 08:50:20.99447+00', 'Opened', 'a2', 1, 2, NULL, NULL, 0);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-24 08:50:21.016311+00', '2026-11-24 08:50:21.016311+00', 'Opened', 'a4', 1, 2, NULL, NULL, 0);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-24 08:50:21.046887+00', '2026-11-24 08:50:21.046887+00', 'Opened', 'a3', 1, 2, NULL, NULL, 0);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-24 08:50:21.058463+00', '2026-11-24 08:50:21.058463+00', 'Opened', 'a5', 1, 0, 'Opened of a5: ValueError(''the process is broken'')', '2026-11-24 08:50:21.058463+00', 0);
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a20cbf-b864-7631-98b2-c3635fedc7f2', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a20cbf-b885-7491-8bb3-481eb8a8c017', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a20cbf-b899-7013-b9f0-1869f73d6c9c', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a20cbf-b889-764d-be31-901e6d480597', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a20cbf-b8a2-705b-bdc7-a092801b0e31', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_letters VALUES ('handlers:events', 0, 'a4', 'ledger.events', 1, 2, '2026-11-24 08:50:20.96574+00', 3, 0, 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')');
INSERT INTO public.projection_letters VALUES ('balances', 1, 'a3', 'ledger.events', 2, 0, '2026-11-24 08:50:21.047025+00', 3, 0, 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken');
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 1, 13);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 2, 5);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a3', 3);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a4', 3);
INSERT INTO public.projections VALUES ('balances', 1, NULL, '6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19', NULL, NULL, NULL, NULL);
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
SELECT pg_catalog.setval('public.command_letters_number_seq', 2, true);
SELECT pg_catalog.setval('public.event_streams_position_seq', 18, true);
ALTER TABLE ONLY public.balances__1
    ADD CONSTRAINT balances__1_pkey PRIMARY KEY (account_id);
ALTER TABLE ONLY public.command_letters
    ADD CONSTRAINT command_letters_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT event_streams_pkey PRIMARY KEY ("position");
ALTER TABLE ONLY public.headrace_schema
    ADD CONSTRAINT headrace_schema_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.process_commands
    ADD CONSTRAINT process_commands_pkey PRIMARY KEY (process, command_id);
ALTER TABLE ONLY public.process_instances
    ADD CONSTRAINT process_instances_pkey PRIMARY KEY (process, instance);
ALTER TABLE ONLY public.process_journal
    ADD CONSTRAINT process_journal_pkey PRIMARY KEY (process, instance, number);
ALTER TABLE ONLY public.process_versions
    ADD CONSTRAINT process_versions_pkey PRIMARY KEY (process, aggregate_id);
ALTER TABLE ONLY public.processes
    ADD CONSTRAINT processes_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.projection_letters
    ADD CONSTRAINT projection_letters_pkey PRIMARY KEY (name, generation, aggregate_id);
ALTER TABLE ONLY public.projection_offsets
    ADD CONSTRAINT projection_offsets_pkey PRIMARY KEY (name, generation, topic, queue_id);
ALTER TABLE ONLY public.projection_versions
    ADD CONSTRAINT projection_versions_pkey PRIMARY KEY (name, generation, aggregate_id);
ALTER TABLE ONLY public.projections
    ADD CONSTRAINT projections_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (aggregate_id);
ALTER TABLE ONLY public.command_letters
    ADD CONSTRAINT uq_command_letters_command UNIQUE (aggregate_id, command_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_command UNIQUE (aggregate_id, command_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_version UNIQUE (aggregate_id, version);
ALTER TABLE ONLY public.process_journal
    ADD CONSTRAINT uq_process_journal_cause UNIQUE (process, instance, aggregate_id, command_id);
CREATE INDEX ix_process_commands_instance ON public.process_commands USING btree (process, instance, number);
CREATE INDEX ix_process_commands_unsent ON public.process_commands USING btree (process, sent);
CREATE INDEX ix_process_instances_ended ON public.process_instances USING btree (process, ended, changed_at);
