-- A journal of schema 2, as kaname 0.1.0 wrote it before facts had checksums; the clock was set back after turn-1.
PRAGMA user_version = 2;
PRAGMA application_id = 1801547373;
BEGIN TRANSACTION;
CREATE TABLE facts (
        run TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, agent TEXT NOT NULL, type TEXT NOT NULL,
        body TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) WITHOUT ROWID;
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',1,1.79476247136261630058e+09,'agent','Opened','{"user":"u","base":["turn-1",7],"recipe":{"instructions":"Be brief.","model":"scripted","tools":{"add":"794a7499cf895bd4"},"settings":"44136fa355b3678a"}}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',2,1.79476247136261630058e+09,'agent','Received','{"message":{"role":"user","parts":[{"type":"text","text":"again"}]}}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',3,1.7947624713633658886e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"call","id":"c3_0","name":"add","args":{"a":3,"b":4}}]},"stop_reason":"tool_use","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',4,1.7947624713640255928e+09,'agent','ToolStarted','{"call":{"id":"c3_0","name":"add","args":{"a":3,"b":4}},"effect":"pure","key":"1a1e02df7c0859934c3ea69ba:c3_0"}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',5,1.79476247136468482018e+09,'agent','ToolFinished','{"result":{"output":7,"call_id":"c3_0","name":"add"}}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',6,1.79476247136528253555e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"text","text":"the sum is 7 (2 asked)"}]},"stop_reason":"end_turn","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('1a1e02df7c0859934c3ea69ba',7,1.79476247136577939987e+09,'agent','Stopped','{"stop":{"kind":"completed"},"output":"the sum is 7 (2 asked)","decided":true}');
INSERT INTO "facts" VALUES('turn-1',1,1794762471.33946,'agent','Opened','{"session":"s","user":"u","recipe":{"instructions":"Be brief.","model":"scripted","tools":{"add":"794a7499cf895bd4"},"settings":"44136fa355b3678a"}}');
INSERT INTO "facts" VALUES('turn-1',2,1794762471.33946,'agent','Received','{"message":{"role":"user","parts":[{"type":"text","text":"add, turn 1 三と四"}]}}');
INSERT INTO "facts" VALUES('turn-1',3,1.7947624713406264782e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"call","id":"c1_0","name":"add","args":{"a":3,"b":4}}]},"stop_reason":"tool_use","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-1',4,1.79476247134153676033e+09,'agent','ToolStarted','{"call":{"id":"c1_0","name":"add","args":{"a":3,"b":4}},"effect":"pure","key":"turn-1:c1_0"}');
INSERT INTO "facts" VALUES('turn-1',5,1.79476247134231424332e+09,'agent','ToolFinished','{"result":{"output":7,"call_id":"c1_0","name":"add"}}');
INSERT INTO "facts" VALUES('turn-1',6,1.7947624713429889679e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"text","text":"the sum is 7 (1 asked)"}]},"stop_reason":"end_turn","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-1',7,1.79476247134353494644e+09,'agent','Stopped','{"stop":{"kind":"completed"},"output":"the sum is 7 (1 asked)","decided":true}');
INSERT INTO "facts" VALUES('turn-2',1,1.79475247134537577629e+09,'agent','Opened','{"session":"s","user":"u","base":["turn-1",7],"recipe":{"instructions":"Be brief.","model":"scripted","tools":{"add":"794a7499cf895bd4"},"settings":"44136fa355b3678a"}}');
INSERT INTO "facts" VALUES('turn-2',2,1.79475247134537577629e+09,'agent','Received','{"message":{"role":"user","parts":[{"type":"text","text":"add, turn 2 三と四"}]}}');
INSERT INTO "facts" VALUES('turn-2',3,1.79475247134621620178e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"call","id":"c3_0","name":"add","args":{"a":3,"b":4}}]},"stop_reason":"tool_use","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-2',4,1.79475247134690237045e+09,'agent','ToolStarted','{"call":{"id":"c3_0","name":"add","args":{"a":3,"b":4}},"effect":"pure","key":"turn-2:c3_0"}');
INSERT INTO "facts" VALUES('turn-2',5,1.79475247134762883186e+09,'agent','ToolFinished','{"result":{"output":7,"call_id":"c3_0","name":"add"}}');
INSERT INTO "facts" VALUES('turn-2',6,1.79475247134831666946e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"text","text":"the sum is 7 (2 asked)"}]},"stop_reason":"end_turn","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-2',7,1.79475247134888863564e+09,'agent','Stopped','{"stop":{"kind":"completed"},"output":"the sum is 7 (2 asked)","decided":true}');
INSERT INTO "facts" VALUES('turn-3',1,1.79475247135036110878e+09,'agent','Opened','{"session":"s","user":"u","base":["turn-2",7],"recipe":{"instructions":"Be brief.","model":"scripted","tools":{"add":"794a7499cf895bd4"},"settings":"44136fa355b3678a"}}');
INSERT INTO "facts" VALUES('turn-3',2,1.79475247135036110878e+09,'agent','Received','{"message":{"role":"user","parts":[{"type":"text","text":"add, turn 3 三と四"}]}}');
INSERT INTO "facts" VALUES('turn-3',3,1.79475247135108780861e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"call","id":"c5_0","name":"add","args":{"a":3,"b":4}}]},"stop_reason":"tool_use","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-3',4,1.79475247135174369812e+09,'agent','ToolStarted','{"call":{"id":"c5_0","name":"add","args":{"a":3,"b":4}},"effect":"pure","key":"turn-3:c5_0"}');
INSERT INTO "facts" VALUES('turn-3',5,1.79475247135240888596e+09,'agent','ToolFinished','{"result":{"output":7,"call_id":"c5_0","name":"add"}}');
INSERT INTO "facts" VALUES('turn-3',6,1.79475247135302257538e+09,'agent','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"text","text":"the sum is 7 (3 asked)"}]},"stop_reason":"end_turn","usage":{"input":10,"output":5}},"step":{},"request":"1d0b8fdbd60e7599"}');
INSERT INTO "facts" VALUES('turn-3',7,1.79475247135353732109e+09,'agent','Stopped','{"stop":{"kind":"completed"},"output":"the sum is 7 (3 asked)","decided":true}');
INSERT INTO "facts" VALUES('waiting',1,1.79476247135833668709e+09,'payer','Opened','{"recipe":{"instructions":"","model":"scripted","tools":{"pay":"a0b9128ad91dfe62"},"settings":"44136fa355b3678a"}}');
INSERT INTO "facts" VALUES('waiting',2,1.79476247135833668709e+09,'payer','Received','{"message":{"role":"user","parts":[{"type":"text","text":"pay"}]}}');
INSERT INTO "facts" VALUES('waiting',3,1.79476247135904598236e+09,'payer','ModelReplied','{"reply":{"message":{"role":"assistant","parts":[{"type":"call","id":"c1_0","name":"pay","args":{"yen":5}}]},"stop_reason":"tool_use","usage":{"input":10,"output":5}},"step":{},"request":"52a16dcf4baae87a"}');
INSERT INTO "facts" VALUES('waiting',4,1.7947624713596405983e+09,'payer','Asked','{"key":"approve:c1_0","prompt":"Run pay({\"yen\": 5})?","options":["yes","no"],"call_id":"c1_0"}');
CREATE TABLE runs (
        run TEXT PRIMARY KEY, agent TEXT NOT NULL DEFAULT '', session TEXT NOT NULL DEFAULT '',
        user TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'running', title TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL DEFAULT 0, updated REAL NOT NULL DEFAULT 0, seq INTEGER NOT NULL DEFAULT 0,
        input INTEGER NOT NULL DEFAULT 0, output INTEGER NOT NULL DEFAULT 0, cost REAL DEFAULT 0, base TEXT NOT NULL DEFAULT '',
        questions INTEGER NOT NULL DEFAULT 0, epoch INTEGER NOT NULL DEFAULT 0, owner TEXT
    ) WITHOUT ROWID;
INSERT INTO "runs" VALUES('1a1e02df7c0859934c3ea69ba','agent','','u','completed','again',1.79476247136261630058e+09,1.79476247136577939987e+09,7,20,10,0.0,'turn-1',0,1,NULL);
INSERT INTO "runs" VALUES('empty','','','','running','',0.0,0.0,0,0,0,0.0,'',0,1,'9242-5d291762ab41');
INSERT INTO "runs" VALUES('turn-1','agent','s','u','completed','add, turn 1 三と四',1794762471.33946,1.79476247134353494644e+09,7,20,10,0.0,'',0,1,NULL);
INSERT INTO "runs" VALUES('turn-2','agent','s','u','completed','add, turn 2 三と四',1.79475247134537577629e+09,1.79475247134888863564e+09,7,20,10,0.0,'turn-1',0,1,NULL);
INSERT INTO "runs" VALUES('turn-3','agent','s','u','completed','add, turn 3 三と四',1.79475247135036110878e+09,1.79475247135353732109e+09,7,20,10,0.0,'turn-2',0,1,NULL);
INSERT INTO "runs" VALUES('waiting','payer','','','waiting','pay',1.79476247135833668709e+09,1.7947624713596405983e+09,4,10,5,0.0,'',1,1,NULL);
CREATE INDEX runs_by_time ON runs (created);
CREATE INDEX runs_by_session ON runs (session, created) WHERE session <> '';
CREATE INDEX runs_by_base ON runs (base) WHERE base <> '';
COMMIT;
