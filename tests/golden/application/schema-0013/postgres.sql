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
    message bytea NOT NULL,
    trace text DEFAULT ''::text NOT NULL
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
    body text NOT NULL,
    checksum bigint
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
    retries integer NOT NULL,
    traceback text
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
    name character varying(127) NOT NULL,
    generation integer NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    topic character varying(127) NOT NULL,
    queue_id integer NOT NULL,
    message_offset bigint NOT NULL,
    parked_at timestamp with time zone NOT NULL,
    held bigint NOT NULL,
    retries integer NOT NULL,
    error text NOT NULL,
    version bigint,
    traceback text
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
CREATE TABLE public.reader_marks (
    name character varying(150) NOT NULL,
    generation integer NOT NULL,
    queue_id integer NOT NULL,
    topic_identity character varying(36) NOT NULL,
    store_identity character varying(36) NOT NULL,
    next_offset bigint NOT NULL,
    message_id character varying(255) NOT NULL,
    aggregate_id character varying(255) NOT NULL,
    command_id character varying(255) NOT NULL
);
CREATE TABLE public.snapshots (
    aggregate_id character varying(255) NOT NULL,
    aggregate_type character varying(127) NOT NULL,
    version bigint NOT NULL,
    state_version integer NOT NULL,
    body text NOT NULL
);
CREATE TABLE public.store_identity (
    number integer NOT NULL,
    store_id character varying(36) NOT NULL,
    seal_key bytea NOT NULL,
    made_at timestamp with time zone NOT NULL
);
CREATE TABLE public.topic_damages (
    topic character varying(150) NOT NULL,
    topic_identity character varying(36) NOT NULL,
    queue_id integer NOT NULL,
    next_offset bigint NOT NULL,
    first_offset bigint NOT NULL,
    noted_at timestamp with time zone NOT NULL,
    taken_by character varying(36),
    taken_until timestamp with time zone,
    filled boolean NOT NULL
);
ALTER TABLE ONLY public.command_letters ALTER COLUMN number SET DEFAULT nextval('public.command_letters_number_seq'::regclass);
ALTER TABLE ONLY public.event_streams ALTER COLUMN "position" SET DEFAULT nextval('public.event_streams_position_seq'::regclass);
INSERT INTO public.balances__1 VALUES ('a1', 505);
INSERT INTO public.balances__1 VALUES ('a5', 7);
INSERT INTO public.balances__1 VALUES ('a2', 5);
INSERT INTO public.balances__1 VALUES ('a4', 12);
INSERT INTO public.command_letters VALUES (1, 'a2', '01a20cc3-417e-7286-8676-df259784c5f4', 'Deposit', 'holding', '2026-11-24 08:54:12.6101+00', 1, 'ValueError', 'the command handler is broken', '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92461616563623932652d343663632d346535302d393363622d373339363638393335373337b17265706c792d636f7272656c6174696f6ed92430316132306363332d343137652d373238362d383637362d646632363830313663613834a4626f6479c4bc7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306363332d343137652d373238362d383637362d646632353937383463356634222c22636f7272656c6174696f6e5f6964223a2230316132306363332d343137652d373238362d383637362d646632353937383463356634222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a31337d2c226974656d73223a7b7d7d', 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 135, in deposit
    raise ValueError("the command handler is broken")
ValueError: the command handler is broken');
INSERT INTO public.command_letters VALUES (2, 'a2', '01a20cc3-4187-75fa-8dc6-27bbc38651ce', 'Deposit', 'held', '2026-11-24 08:54:12.619518+00', 1, 'Held', 'command 01a20cc3-417e-7286-8676-df259784c5f4 of aggregate ''a2'' is parked, and its later commands are held behind it; it is carried out when that one was retried or skipped, and may be asked for by the same id', '\x83a36b6579a26132a76865616465727382a87265706c792d746fd92461616563623932652d343663632d346535302d393363622d373339363638393335373337b17265706c792d636f7272656c6174696f6ed92430316132306363332d343138372d373566612d386463362d323762636539616635626234a4626f6479c4bb7b226e616d65223a224465706f736974222c2276657273696f6e223a312c22636f6d6d616e645f6964223a2230316132306363332d343138372d373566612d386463362d323762626333383635316365222c22636f7272656c6174696f6e5f6964223a2230316132306363332d343138372d373566612d386463362d323762626333383635316365222c2264617461223a7b226163636f756e745f6964223a226132222c22616d6f756e74223a317d2c226974656d73223a7b7d7d', '');
INSERT INTO public.event_streams VALUES (1, 'a1', 'Account', 1, '01a20cc3-40fd-721e-88c7-5347d2970813', '2026-11-24 08:54:12.503905+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":1,"command_id":"01a20cc3-40fd-721e-88c7-5347d2970813","correlation_id":"01a20cc3-40fd-721e-88c7-5347d2970813","recorded_at":"2026-11-24T08:54:12.503905Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"ann"}}],"rejection":null}', 315504187);
INSERT INTO public.event_streams VALUES (2, 'a2', 'Account', 1, '01a20cc3-4129-728f-9b70-1482f5a39f3c', '2026-11-24 08:54:12.522638+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":1,"command_id":"01a20cc3-4129-728f-9b70-1482f5a39f3c","correlation_id":"01a20cc3-4129-728f-9b70-1482f5a39f3c","recorded_at":"2026-11-24T08:54:12.522638Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"bob"}}],"rejection":null}', 1508445);
INSERT INTO public.event_streams VALUES (3, 'a3', 'Account', 1, '01a20cc3-4130-7245-8068-cde0c173b4e7', '2026-11-24 08:54:12.535637+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":1,"command_id":"01a20cc3-4130-7245-8068-cde0c173b4e7","correlation_id":"01a20cc3-4130-7245-8068-cde0c173b4e7","recorded_at":"2026-11-24T08:54:12.535637Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"fold"}}],"rejection":null}', 2421397291);
INSERT INTO public.event_streams VALUES (4, 'a4', 'Account', 1, '01a20cc3-413e-7401-90ea-700cc2fee3f5', '2026-11-24 08:54:12.544956+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":1,"command_id":"01a20cc3-413e-7401-90ea-700cc2fee3f5","correlation_id":"01a20cc3-413e-7401-90ea-700cc2fee3f5","recorded_at":"2026-11-24T08:54:12.544956Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"handler"}}],"rejection":null}', 570650632);
INSERT INTO public.event_streams VALUES (5, 'a5', 'Account', 1, '01a20cc3-4146-738c-b448-b06bf439b346', '2026-11-24 08:54:12.551667+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":1,"command_id":"01a20cc3-4146-738c-b448-b06bf439b346","correlation_id":"01a20cc3-4146-738c-b448-b06bf439b346","recorded_at":"2026-11-24T08:54:12.551667Z","result":null,"items":{},"events":[{"name":"Opened","version":1,"data":{"owner":"process"}}],"rejection":null}', 1705221061);
INSERT INTO public.event_streams VALUES (6, 'a1', 'Account', 2, '01a20cc3-4149-7027-b7ab-6a88a1b21fd9', '2026-11-24 08:54:12.555264+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":2,"command_id":"01a20cc3-4149-7027-b7ab-6a88a1b21fd9","correlation_id":"01a20cc3-4149-7027-b7ab-6a88a1b21fd9","recorded_at":"2026-11-24T08:54:12.555264Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":100}}],"rejection":null}', 328696299);
INSERT INTO public.event_streams VALUES (7, 'a1', 'Account', 3, '2ea32abc-92aa-558a-abc2-b62f08b85f6b', '2026-11-24 08:54:12.562493+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":3,"command_id":"2ea32abc-92aa-558a-abc2-b62f08b85f6b","correlation_id":"01a20cc3-40fd-721e-88c7-5347d2970813","recorded_at":"2026-11-24T08:54:12.562493Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":105}}],"rejection":null}', 142498852);
INSERT INTO public.event_streams VALUES (8, 'a1', 'Account', 4, '01a20cc3-4154-7326-827a-b2f1e4f46ed3', '2026-11-24 08:54:12.566047+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":4,"command_id":"01a20cc3-4154-7326-827a-b2f1e4f46ed3","correlation_id":"01a20cc3-4154-7326-827a-b2f1e4f46ed3","recorded_at":"2026-11-24T08:54:12.566047Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":205}}],"rejection":null}', 2757915549);
INSERT INTO public.event_streams VALUES (9, 'a1', 'Account', 5, '01a20cc3-415b-70c6-87f3-d4cc76fc9bf0', '2026-11-24 08:54:12.573345+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":5,"command_id":"01a20cc3-415b-70c6-87f3-d4cc76fc9bf0","correlation_id":"01a20cc3-415b-70c6-87f3-d4cc76fc9bf0","recorded_at":"2026-11-24T08:54:12.573345Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":305}}],"rejection":null}', 1135036545);
INSERT INTO public.event_streams VALUES (10, 'a1', 'Account', 6, '01a20cc3-4160-767a-935c-597ca023ad48', '2026-11-24 08:54:12.57798+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":6,"command_id":"01a20cc3-4160-767a-935c-597ca023ad48","correlation_id":"01a20cc3-4160-767a-935c-597ca023ad48","recorded_at":"2026-11-24T08:54:12.577980Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":405}}],"rejection":null}', 3118348377);
INSERT INTO public.event_streams VALUES (11, 'a1', 'Account', 7, '01a20cc3-4164-72a1-bd5b-f74b176b183c', '2026-11-24 08:54:12.582302+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":7,"command_id":"01a20cc3-4164-72a1-bd5b-f74b176b183c","correlation_id":"01a20cc3-4164-72a1-bd5b-f74b176b183c","recorded_at":"2026-11-24T08:54:12.582302Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":100,"balance":505}}],"rejection":null}', 4059048687);
INSERT INTO public.event_streams VALUES (12, 'a1', 'Account', NULL, '01a20cc3-4169-7632-894d-69b5ee17d9f3', '2026-11-24 08:54:12.586814+00', '{"aggregate_type":"Account","aggregate_id":"a1","version":null,"command_id":"01a20cc3-4169-7632-894d-69b5ee17d9f3","correlation_id":"01a20cc3-4169-7632-894d-69b5ee17d9f3","recorded_at":"2026-11-24T08:54:12.586814Z","result":null,"items":{},"events":[],"rejection":{"error":"DomainError","sentence":"nothing to deposit","command_name":"Deposit","command_version":1,"command_data":{"account_id":"a1","amount":0}}}', 2123677388);
INSERT INTO public.event_streams VALUES (13, 'a3', 'Account', 2, '01a20cc3-416e-70cb-a955-c132a1e0baf4', '2026-11-24 08:54:12.592241+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":2,"command_id":"01a20cc3-416e-70cb-a955-c132a1e0baf4","correlation_id":"01a20cc3-416e-70cb-a955-c132a1e0baf4","recorded_at":"2026-11-24T08:54:12.592241Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3730840735);
INSERT INTO public.event_streams VALUES (14, 'a4', 'Account', 2, '01a20cc3-4173-7479-b344-600a3561cf93', '2026-11-24 08:54:12.597038+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":2,"command_id":"01a20cc3-4173-7479-b344-600a3561cf93","correlation_id":"01a20cc3-4173-7479-b344-600a3561cf93","recorded_at":"2026-11-24T08:54:12.597038Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 1337307143);
INSERT INTO public.event_streams VALUES (15, 'a5', 'Account', 2, '01a20cc3-4177-7765-9cf6-4af40dcf09cc', '2026-11-24 08:54:12.600499+00', '{"aggregate_type":"Account","aggregate_id":"a5","version":2,"command_id":"01a20cc3-4177-7765-9cf6-4af40dcf09cc","correlation_id":"01a20cc3-4177-7765-9cf6-4af40dcf09cc","recorded_at":"2026-11-24T08:54:12.600499Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":7,"balance":7}}],"rejection":null}', 3567952980);
INSERT INTO public.event_streams VALUES (16, 'a2', 'Account', 2, 'e0f3ec41-497c-5669-8903-bfdf8b9e9f5f', '2026-11-24 08:54:12.605426+00', '{"aggregate_type":"Account","aggregate_id":"a2","version":2,"command_id":"e0f3ec41-497c-5669-8903-bfdf8b9e9f5f","correlation_id":"01a20cc3-4129-728f-9b70-1482f5a39f3c","recorded_at":"2026-11-24T08:54:12.605426Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":5}}],"rejection":null}', 3025022165);
INSERT INTO public.event_streams VALUES (17, 'a4', 'Account', 3, 'e9138989-d278-5e0d-8a8e-0ddbe52b7075', '2026-11-24 08:54:12.620502+00', '{"aggregate_type":"Account","aggregate_id":"a4","version":3,"command_id":"e9138989-d278-5e0d-8a8e-0ddbe52b7075","correlation_id":"01a20cc3-413e-7401-90ea-700cc2fee3f5","recorded_at":"2026-11-24T08:54:12.620502Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 3675564851);
INSERT INTO public.event_streams VALUES (18, 'a3', 'Account', 3, 'a53dd08f-47ca-5af4-b470-bb30d28a226d', '2026-11-24 08:54:12.644533+00', '{"aggregate_type":"Account","aggregate_id":"a3","version":3,"command_id":"a53dd08f-47ca-5af4-b470-bb30d28a226d","correlation_id":"01a20cc3-4130-7245-8068-cde0c173b4e7","recorded_at":"2026-11-24T08:54:12.644533Z","result":null,"items":{},"events":[{"name":"Deposited","version":1,"data":{"amount":5,"balance":12}}],"rejection":null}', 2600744277);
INSERT INTO public.headrace_schema VALUES ('0013');
INSERT INTO public.process_commands VALUES ('greetings', '0dbb9d90-c1c6-5a60-a610-20060c1a2fbb', 'a1', 2, 'Close', 'a1', '{"name":"Close","version":1,"command_id":"0dbb9d90-c1c6-5a60-a610-20060c1a2fbb","correlation_id":"01a20cc3-40fd-721e-88c7-5347d2970813","data":{"account_id":"a1"},"items":{}}', '2027-09-20 08:54:12.503905+00', '2026-11-24 08:54:12.523204+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '2ea32abc-92aa-558a-abc2-b62f08b85f6b', 'a1', 1, 'Deposit', 'a1', '{"name":"Deposit","version":1,"command_id":"2ea32abc-92aa-558a-abc2-b62f08b85f6b","correlation_id":"01a20cc3-40fd-721e-88c7-5347d2970813","data":{"account_id":"a1","amount":5},"items":{}}', NULL, '2026-11-24 08:54:12.523204+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '09e5431b-0d20-561c-87af-c01eb0766608', 'a2', 2, 'Close', 'a2', '{"name":"Close","version":1,"command_id":"09e5431b-0d20-561c-87af-c01eb0766608","correlation_id":"01a20cc3-4129-728f-9b70-1482f5a39f3c","data":{"account_id":"a2"},"items":{}}', '2027-09-20 08:54:12.522638+00', '2026-11-24 08:54:12.587378+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'e0f3ec41-497c-5669-8903-bfdf8b9e9f5f', 'a2', 1, 'Deposit', 'a2', '{"name":"Deposit","version":1,"command_id":"e0f3ec41-497c-5669-8903-bfdf8b9e9f5f","correlation_id":"01a20cc3-4129-728f-9b70-1482f5a39f3c","data":{"account_id":"a2","amount":5},"items":{}}', NULL, '2026-11-24 08:54:12.587378+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'a0bdefcf-48be-5efa-a49e-ad2de5be65aa', 'a4', 2, 'Close', 'a4', '{"name":"Close","version":1,"command_id":"a0bdefcf-48be-5efa-a49e-ad2de5be65aa","correlation_id":"01a20cc3-413e-7401-90ea-700cc2fee3f5","data":{"account_id":"a4"},"items":{}}', '2027-09-20 08:54:12.544956+00', '2026-11-24 08:54:12.611432+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'e9138989-d278-5e0d-8a8e-0ddbe52b7075', 'a4', 1, 'Deposit', 'a4', '{"name":"Deposit","version":1,"command_id":"e9138989-d278-5e0d-8a8e-0ddbe52b7075","correlation_id":"01a20cc3-413e-7401-90ea-700cc2fee3f5","data":{"account_id":"a4","amount":5},"items":{}}', NULL, '2026-11-24 08:54:12.611432+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', '9bb9e51f-ffab-5162-94bf-f705cb2f36ae', 'a3', 2, 'Close', 'a3', '{"name":"Close","version":1,"command_id":"9bb9e51f-ffab-5162-94bf-f705cb2f36ae","correlation_id":"01a20cc3-4130-7245-8068-cde0c173b4e7","data":{"account_id":"a3"},"items":{}}', '2027-09-20 08:54:12.535637+00', '2026-11-24 08:54:12.64089+00', true, NULL);
INSERT INTO public.process_commands VALUES ('greetings', 'a53dd08f-47ca-5af4-b470-bb30d28a226d', 'a3', 1, 'Deposit', 'a3', '{"name":"Deposit","version":1,"command_id":"a53dd08f-47ca-5af4-b470-bb30d28a226d","correlation_id":"01a20cc3-4130-7245-8068-cde0c173b4e7","data":{"account_id":"a3","amount":5},"items":{}}', NULL, '2026-11-24 08:54:12.64089+00', true, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a1', '{"owner":"ann"}', 1, '[]', false, '2026-11-24 08:54:12.523204+00', '2026-11-24 08:54:12.523204+00', 'Opened', 'a1', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a2', '{"owner":"bob"}', 1, '[]', false, '2026-11-24 08:54:12.587378+00', '2026-11-24 08:54:12.587378+00', 'Opened', 'a2', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a4', '{"owner":"handler"}', 1, '[]', false, '2026-11-24 08:54:12.611432+00', '2026-11-24 08:54:12.611432+00', 'Opened', 'a4', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a3', '{"owner":"fold"}', 1, '[]', false, '2026-11-24 08:54:12.64089+00', '2026-11-24 08:54:12.64089+00', 'Opened', 'a3', 1, 2, NULL, NULL, 0, NULL);
INSERT INTO public.process_instances VALUES ('greetings', 'a5', NULL, 1, '[]', false, '2026-11-24 08:54:12.646987+00', '2026-11-24 08:54:12.646987+00', 'Opened', 'a5', 1, 0, 'Opened of a5: ValueError(''the process is broken'')', '2026-11-24 08:54:12.646987+00', 0, 'Traceback (most recent call last):
  File "tests/golden/application/ledger.py", line 106, in greet
    raise ValueError("the process is broken")
ValueError: the process is broken');
INSERT INTO public.process_journal VALUES ('greetings', 'a1', 1, 'a1', '01a20cc3-40fd-721e-88c7-5347d2970813', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a2', 1, 'a2', '01a20cc3-4129-728f-9b70-1482f5a39f3c', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a4', 1, 'a4', '01a20cc3-413e-7401-90ea-700cc2fee3f5', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a3', 1, 'a3', '01a20cc3-4130-7245-8068-cde0c173b4e7', 'done');
INSERT INTO public.process_journal VALUES ('greetings', 'a5', 1, 'a5', '01a20cc3-4146-738c-b448-b06bf439b346', 'waits');
INSERT INTO public.process_versions VALUES ('greetings', 'a1', 7);
INSERT INTO public.process_versions VALUES ('greetings', 'a4', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a2', 2);
INSERT INTO public.process_versions VALUES ('greetings', 'a3', 3);
INSERT INTO public.process_versions VALUES ('greetings', 'a5', 2);
INSERT INTO public.processes VALUES ('greetings');
INSERT INTO public.projection_letters VALUES ('handlers:events', 0, 'a4', 'ledger.events', 1, 2, '2026-11-24 08:54:12.555185+00', 3, 0, 'write_letter failed at Opened a4/1/1: ValueError(''the handler is broken'')', NULL, 'Traceback (most recent call last):
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
INSERT INTO public.projection_letters VALUES ('balances', 1, 'a3', 'ledger.events', 2, 0, '2026-11-24 08:54:12.599249+00', 3, 0, 'projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken', NULL, 'Traceback (most recent call last):
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
  File ".venv/lib/python3.11/site-packages/sqlalchemy/ext/asyncio/engine.py", line 907, in run_sync
    return await greenlet_spawn(
           ^^^^^^^^^^^^^^^^^^^^^
  File ".venv/lib/python3.11/site-packages/sqlalchemy/util/concurrency.py", line 216, in greenlet_spawn
    result = context.switch(value)
             ^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 229, in _apply
    folded = _fold(connection, target, batch.streams, versions, parked, recall)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/batch_transaction.py", line 302, in _fold
    changes = fold_facts(projection, rows, facts)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "framework/headrace/projections/definition/fold.py", line 131, in fold_facts
    raise poisoned(projection, event, context, error) from error
headrace.errors.ProjectionError: projection balances cannot fold Opened a3/1/1: ValueError: the fold is broken');
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 1, 13);
INSERT INTO public.projection_offsets VALUES ('balances', 1, 'ledger.events', 2, 5);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a1', 7);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a5', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a2', 2);
INSERT INTO public.projection_versions VALUES ('balances', 1, 'a4', 3);
INSERT INTO public.projection_versions VALUES ('handlers:events', 0, 'a3', 3);
INSERT INTO public.projections VALUES ('balances', 1, NULL, '6ecf6f7be595e83338706899a1717e72b1bf98ff245a1d1b61aaf4c77b30cd19', NULL, NULL, NULL, NULL);
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, -1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('topic:ledger.events', 0, 0, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, -1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('balances', 1, 1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 13, 'e9138989-d278-5e0d-8a8e-0ddbe52b7075', 'a4', 'e9138989-d278-5e0d-8a8e-0ddbe52b7075');
INSERT INTO public.reader_marks VALUES ('balances', 1, 2, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 5, 'a53dd08f-47ca-5af4-b470-bb30d28a226d', 'a3', 'a53dd08f-47ca-5af4-b470-bb30d28a226d');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, -1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 13, 'e9138989-d278-5e0d-8a8e-0ddbe52b7075', 'a4', 'e9138989-d278-5e0d-8a8e-0ddbe52b7075');
INSERT INTO public.reader_marks VALUES ('handlers:events', 0, 2, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 5, 'a53dd08f-47ca-5af4-b470-bb30d28a226d', 'a3', 'a53dd08f-47ca-5af4-b470-bb30d28a226d');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, -1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 0, '', '', '');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 1, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 13, 'e9138989-d278-5e0d-8a8e-0ddbe52b7075', 'a4', 'e9138989-d278-5e0d-8a8e-0ddbe52b7075');
INSERT INTO public.reader_marks VALUES ('process:greetings', 0, 2, 'bcdac561-f655-4f8e-902e-b43a73092a11', '01a20cc3-40eb-744c-95f6-58c0650642f4', 5, 'a53dd08f-47ca-5af4-b470-bb30d28a226d', 'a3', 'a53dd08f-47ca-5af4-b470-bb30d28a226d');
INSERT INTO public.snapshots VALUES ('a1', 'Account', 6, 1, '{"balance":405}');
INSERT INTO public.snapshots VALUES ('a4', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.snapshots VALUES ('a3', 'Account', 3, 1, '{"balance":12}');
INSERT INTO public.store_identity VALUES (1, '01a20cc3-40eb-744c-95f6-58c0650642f4', '\x334ff3d2aa0aa17c16a5722544fc73f4dcdaeeae5d5a1d265be245f64a98f6de', '2026-11-24 08:54:12.459834+00');
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
ALTER TABLE ONLY public.reader_marks
    ADD CONSTRAINT reader_marks_pkey PRIMARY KEY (name, generation, queue_id);
ALTER TABLE ONLY public.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (aggregate_id);
ALTER TABLE ONLY public.store_identity
    ADD CONSTRAINT store_identity_pkey PRIMARY KEY (number);
ALTER TABLE ONLY public.topic_damages
    ADD CONSTRAINT topic_damages_pkey PRIMARY KEY (topic, topic_identity, queue_id, next_offset);
ALTER TABLE ONLY public.command_letters
    ADD CONSTRAINT uq_command_letters_command UNIQUE (aggregate_id, command_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_command UNIQUE (aggregate_id, command_id);
ALTER TABLE ONLY public.event_streams
    ADD CONSTRAINT uq_event_streams_version UNIQUE (aggregate_id, version);
ALTER TABLE ONLY public.process_journal
    ADD CONSTRAINT uq_process_journal_cause UNIQUE (process, instance, aggregate_id, command_id);
CREATE INDEX ix_process_commands_instance ON public.process_commands USING btree (process, instance, number);
CREATE INDEX ix_process_commands_unsent ON public.process_commands USING btree (process, sent, due);
CREATE INDEX ix_process_instances_ended ON public.process_instances USING btree (process, ended, changed_at);
CREATE INDEX ix_process_instances_parked ON public.process_instances USING btree (process, parked_at) WHERE (parked_at IS NOT NULL);
