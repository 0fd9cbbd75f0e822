CREATE SEQUENCE invoice_seq START 1000;
CREATE TABLE employees (
  id INTEGER PRIMARY KEY,
  name VARCHAR NOT NULL,
  name_en VARCHAR,
  title VARCHAR,
  dept VARCHAR,
  manager_id INTEGER,
  hired_on DATE,
  salary INTEGER,
  email VARCHAR
);
CREATE TABLE customers (
  id INTEGER PRIMARY KEY,
  name VARCHAR NOT NULL,
  name_en VARCHAR,
  email VARCHAR UNIQUE,
  city VARCHAR,
  country VARCHAR NOT NULL DEFAULT 'JP',
  birthday DATE,
  vip BOOLEAN NOT NULL DEFAULT FALSE,
  points INTEGER NOT NULL DEFAULT 0,
  created_at TIMESTAMP NOT NULL,
  deleted_at TIMESTAMP,
  note VARCHAR
);
CREATE TABLE products (
  id INTEGER PRIMARY KEY,
  sku VARCHAR NOT NULL UNIQUE,
  name VARCHAR NOT NULL,
  name_en VARCHAR,
  category VARCHAR,
  price INTEGER NOT NULL,
  cost INTEGER,
  weight_g INTEGER,
  attributes JSON,
  discontinued BOOLEAN NOT NULL DEFAULT FALSE,
  released_on DATE
);
CREATE TABLE orders (
  id INTEGER PRIMARY KEY,
  customer_id INTEGER NOT NULL REFERENCES customers(id),
  employee_id INTEGER REFERENCES employees(id),
  ordered_at TIMESTAMP NOT NULL,
  shipped_at TIMESTAMP,
  status VARCHAR NOT NULL,
  coupon VARCHAR,
  memo VARCHAR,
  "update" VARCHAR
);
CREATE TABLE order_items (
  id INTEGER PRIMARY KEY,
  order_id INTEGER NOT NULL REFERENCES orders(id),
  product_id INTEGER NOT NULL REFERENCES products(id),
  quantity INTEGER NOT NULL,
  unit_price INTEGER NOT NULL,
  discount INTEGER
);
CREATE TABLE 売上目標 (
  年月 VARCHAR NOT NULL,
  部門 VARCHAR NOT NULL,
  目標額 INTEGER NOT NULL,
  備考 VARCHAR,
  PRIMARY KEY (年月, 部門)
);
CREATE INDEX idx_orders_status ON orders (status);
CREATE VIEW order_totals AS
  SELECT o.id AS order_id, o.customer_id, o.status, o.ordered_at,
         COALESCE(SUM(i.quantity * i.unit_price - COALESCE(i.discount, 0)), 0) AS total
  FROM orders o LEFT JOIN order_items i ON i.order_id = o.id
  GROUP BY o.id, o.customer_id, o.status, o.ordered_at;

INSERT INTO employees (id, name, name_en, title, dept, manager_id, hired_on, salary, email) VALUES
 (1, '高橋 麻衣', 'Mai Takahashi', 'President', '経営', NULL, '2009-04-01', 1250000, 'mai@shop.example'),
 (2, '小林 誠', 'Makoto Kobayashi', 'Sales Director', '営業', 1, '2011-04-01', 880000, 'makoto@shop.example'),
 (3, 'Grace Okafor', 'Grace Okafor', 'IT Director', '情報', 1, '2013-09-16', 910000, 'grace@shop.example'),
 (4, '渡辺 葵', 'Aoi Watanabe', 'Logistics Director', '物流', 1, '2012-10-01', 790000, NULL),
 (5, '山本 陸', 'Riku Yamamoto', 'Sales Lead', '営業', 2, '2016-04-01', 560000, 'riku@shop.example'),
 (6, '中村 結衣', 'Yui Nakamura', 'Sales Lead', '営業', 2, '2017-07-10', 545000, 'yui@shop.example'),
 (7, 'Liam O''Hara', 'Liam O''Hara', 'Sales', '営業', 5, '2019-02-01', 410000, 'liam@shop.example'),
 (8, '伊藤 さくら', 'Sakura Ito', 'Sales', '営業', 5, '2020-04-01', 385000, 'sakura@shop.example'),
 (9, '加藤 大地', 'Daichi Kato', 'Sales', '営業', 6, '2021-04-01', 360000, NULL),
 (10, '吉田 凛', 'Rin Yoshida', 'Engineer', '情報', 3, '2018-11-05', 620000, 'rin@shop.example'),
 (11, 'Priya Nair', 'Priya Nair', 'Engineer', '情報', 3, '2020-01-20', 640000, 'priya@shop.example'),
 (12, '佐々木 悠', 'Yu Sasaki', 'Data Analyst', '情報', 10, '2022-04-01', 430000, 'yu@shop.example'),
 (13, '松本 花', 'Hana Matsumoto', 'Warehouse', '物流', 4, '2015-05-18', 340000, NULL),
 (14, '井上 健', 'Ken Inoue', 'Warehouse', '物流', 4, '2019-08-19', 330000, NULL),
 (15, 'José Álvarez', 'Jose Alvarez', 'Driver', '物流', 13, '2023-03-01', 325000, 'jose@shop.example'),
 (16, '木村 楓', 'Kaede Kimura', 'Intern', '営業', 6, '2024-04-01', NULL, NULL);

INSERT INTO customers (id, name, name_en, email, city, country, birthday, vip, points, created_at, deleted_at, note) VALUES
 (1, '佐藤 花子', 'Hanako Sato', 'hanako@example.com', '東京', 'JP', '1988-03-14', TRUE, 4200, '2022-01-05 09:12:00', NULL, '配達は午後; 犬に注意'),
 (2, '鈴木 一郎', 'Ichiro Suzuki', 'ichiro@example.jp', '名古屋', 'JP', '1973-10-22', FALSE, 310, '2022-01-19 18:40:11', NULL, NULL),
 (3, 'Emma Müller', 'Emma Mueller', 'emma@example.de', 'Berlin', 'DE', '1991-07-02', TRUE, 2750, '2022-02-02 07:05:30', NULL, 'Says "no plastic; paper only"'),
 (4, '田中 美咲', 'Misaki Tanaka', 'misaki@example.com', '大阪', 'JP', '1995-12-31', FALSE, 90, '2022-02-28 23:59:59', '2023-08-01 00:00:00', '退会済み'),
 (5, 'Noah Smith', 'Noah Smith', 'noah@example.org', 'Portland', 'US', '1980-01-09', FALSE, 0, '2022-03-11 12:00:00', NULL, 'Robert''); DROP TABLE customers;-- is only his joke'),
 (6, '高田 蓮', 'Ren Takada', NULL, '札幌', 'JP', NULL, FALSE, 15, '2022-04-01 08:30:00', NULL, NULL),
 (7, 'Chloé Dubois', 'Chloe Dubois', 'chloe@example.fr', 'Lyon', 'FR', '1985-05-25', TRUE, 5100, '2022-04-15 10:10:10', NULL, 'Porte bleue; sonnez 2x'),
 (8, '森 直樹', 'Naoki Mori', 'naoki@example.jp', '福岡', 'JP', '1969-09-09', FALSE, 780, '2022-05-05 05:05:05', NULL, '領収書は「森商店」宛'),
 (9, '石川 遥', 'Haruka Ishikawa', 'haruka@example.com', '京都', 'JP', '2001-02-28', FALSE, 1200, '2022-06-17 20:20:00', NULL, NULL),
 (10, 'Oliver Brown', 'Oliver Brown', 'oliver@example.org', 'Leeds', 'GB', '1978-11-11', FALSE, 60, '2022-07-07 07:07:07', '2024-02-29 12:00:00', 'asked us to /* delete */ his data'),
 (11, '前田 光', 'Hikaru Maeda', 'hikaru@example.jp', '東京', 'JP', '1999-06-06', FALSE, 430, '2022-08-20 16:45:00', NULL, NULL),
 (12, 'Sofia Rossi', 'Sofia Rossi', 'sofia@example.it', 'Milano', 'IT', '1993-08-18', TRUE, 3300, '2022-09-09 09:09:09', NULL, 'gift wrap -- always'),
 (13, '藤田 翔', 'Sho Fujita', NULL, '仙台', 'JP', '1990-04-04', FALSE, 5, '2022-10-31 22:15:00', NULL, ''),
 (14, 'Mateo García', 'Mateo Garcia', 'mateo@example.mx', 'Puebla', 'MX', NULL, FALSE, 210, '2022-11-23 13:31:00', NULL, NULL),
 (15, '岡本 千夏', 'Chika Okamoto', 'chika@example.com', '東京', 'JP', '1984-07-29', TRUE, 6400, '2022-12-24 18:00:00', NULL, '「至急」と書く; 電話は''不要'''),
 (16, 'Ava Johnson', 'Ava Johnson', 'ava@example.com', 'Austin', 'US', '1997-03-03', FALSE, 150, '2023-01-15 15:15:00', NULL, NULL),
 (17, '長谷川 海斗', 'Kaito Hasegawa', 'kaito@example.jp', '横浜', 'JP', '2003-05-05', FALSE, 75, '2023-03-20 11:11:00', NULL, '学割'),
 (18, 'Ingrid Larsen', 'Ingrid Larsen', 'ingrid@example.no', 'Bergen', 'NO', '1982-12-01', FALSE, 990, '2023-05-17 06:00:00', NULL, 'ring the bell; twice; no more'),
 (19, '近藤 芽衣', 'Mei Kondo', 'mei@example.com', '大阪', 'JP', '1994-01-20', FALSE, 640, '2023-07-01 19:30:00', NULL, NULL),
 (20, 'Lucas Silva', 'Lucas Silva', 'lucas@example.br', 'Recife', 'BR', '1989-09-30', FALSE, 40, '2023-09-02 14:00:00', NULL, NULL),
 (21, '村上 匠', 'Takumi Murakami', 'takumi@example.jp', '広島', 'JP', '1965-08-06', TRUE, 2100, '2023-11-11 11:11:11', NULL, '常連さん'),
 (22, 'Zoë Novak', 'Zoe Novak', 'zoe@example.cz', 'Brno', 'CZ', '1998-10-10', FALSE, 0, '2024-01-08 08:08:00', NULL, NULL),
 (23, '遠藤 桜', 'Sakura Endo', 'sakura.e@example.com', '那覇', 'JP', NULL, FALSE, 0, '2024-03-03 03:03:03', NULL, '初回'),
 (24, 'Tom "TJ" Jones', 'Tom Jones', 'tj@example.com', 'Cardiff', 'GB', '1975-04-30', FALSE, 20, '2024-05-05 21:00:00', NULL, '100% cotton only; \ is a backslash');

INSERT INTO products (id, sku, name, name_en, category, price, cost, weight_g, attributes, discontinued, released_on) VALUES
 (1, 'TEA-001', '煎茶 100g', 'Sencha 100 g', 'お茶', 1200, 520, 110, '{"origin": "静岡", "organic": true, "tags": ["green", "daily"], "size": {"w": 8, "h": 15}}', FALSE, '2021-05-02'),
 (2, 'TEA-002', '玉露 50g', 'Gyokuro 50 g', 'お茶', 2800, 1400, 60, '{"origin": "宇治", "organic": false, "tags": ["green", "gift"], "size": {"w": 8, "h": 12}}', FALSE, '2021-05-02'),
 (3, 'TEA-003', 'ほうじ茶 200g', 'Hojicha 200 g', 'お茶', 980, 310, 210, '{"origin": "京都", "organic": false, "tags": ["roasted"]}', FALSE, '2021-09-15'),
 (4, 'TEA-004', '抹茶 30g', 'Matcha 30 g', 'お茶', 2200, 990, 40, '{"origin": "宇治", "organic": true, "tags": ["powder", "gift"]}', FALSE, '2022-03-01'),
 (5, 'TEA-005', '紅茶 80g', 'Black tea 80 g', 'お茶', 1450, 600, 90, NULL, TRUE, '2020-01-10'),
 (6, 'CUP-001', '湯呑み', 'Yunomi cup', '食器', 1800, 700, 240, '{"color": "indigo", "fragile": true, "tags": ["ceramic"], "size": {"w": 7, "h": 9}}', FALSE, '2021-02-14'),
 (7, 'CUP-002', '抹茶碗', 'Matcha bowl', '食器', 5400, 2300, 420, '{"color": "black", "fragile": true, "tags": ["ceramic", "gift"], "size": {"w": 12, "h": 8}}', FALSE, '2021-02-14'),
 (8, 'CUP-003', '急須', 'Kyusu teapot', '食器', 6200, 2900, 610, '{"color": "red clay", "fragile": true, "tags": ["ceramic"]}', FALSE, '2022-06-20'),
 (9, 'CUP-004', 'ガラスポット', 'Glass pot', '食器', 3900, 1500, 480, '{"color": "clear", "fragile": true, "tags": []}', FALSE, '2023-04-04'),
 (10, 'SWT-001', '羊羹', 'Yokan', '菓子', 1500, 480, 350, '{"allergens": [], "tags": ["gift", "sweet"]}', FALSE, '2021-10-01'),
 (11, 'SWT-002', '最中 6個', 'Monaka box of 6', '菓子', 1320, 450, 300, '{"allergens": ["soy"], "tags": ["sweet"]}', FALSE, '2021-10-01'),
 (12, 'SWT-003', 'せんべい', 'Rice crackers', '菓子', 640, 190, 180, '{"allergens": ["soy", "wheat"], "tags": ["salty", "daily"]}', FALSE, '2022-01-20'),
 (13, 'SWT-004', '抹茶クッキー', 'Matcha cookies', '菓子', 880, 300, 160, '{"allergens": ["egg", "milk", "wheat"], "tags": ["sweet", "gift"]}', FALSE, '2022-11-03'),
 (14, 'SWT-005', '金平糖', 'Konpeito', '菓子', 420, 120, 70, NULL, TRUE, '2020-07-07'),
 (15, 'TXT-001', '手ぬぐい', 'Tenugui towel', '布', 1100, 350, 40, '{"color": "wave; blue", "tags": ["cotton", "daily"]}', FALSE, '2021-07-01'),
 (16, 'TXT-002', '風呂敷', 'Furoshiki', '布', 2600, 900, 95, '{"color": "mist ''grey''", "tags": ["cotton", "gift"]}', FALSE, '2022-08-08'),
 (17, 'TXT-003', '割烹着', 'Kappogi apron', '布', 4800, 2000, 260, '{"color": "white", "tags": ["cotton"]}', FALSE, '2023-02-22'),
 (18, 'BOK-001', 'お茶の本', 'The Book of Tea; annotated', '本', 1980, 900, 300, '{"pages": 224, "isbn": null, "tags": ["gift"]}', FALSE, '2022-04-23'),
 (19, 'BOK-002', '和菓子図鑑', 'Wagashi "A to Z"', '本', 3300, 1600, 720, '{"pages": 352, "tags": []}', FALSE, '2023-10-27'),
 (20, 'GFT-001', '詰め合わせ', 'Assortment', 'ギフト', 8800, 3900, NULL, '{"tags": ["gift"], "contains": [1, 6, 10]}', FALSE, '2023-12-01');

INSERT INTO orders (id, customer_id, employee_id, ordered_at, shipped_at, status, coupon, memo, "update") VALUES
 (1, 1, 7, '2023-01-07 10:00:00', '2023-01-09 09:00:00', 'shipped', NULL, NULL, 'none'),
 (2, 3, 8, '2023-01-15 21:30:00', '2023-01-20 11:00:00', 'shipped', 'WELCOME', 'Bitte; schnell', 'address'),
 (3, 2, 7, '2023-01-28 08:15:00', '2023-01-30 10:00:00', 'shipped', NULL, NULL, 'none'),
 (4, 7, 9, '2023-02-10 14:45:00', '2023-02-16 15:30:00', 'shipped', 'AMOUR', 'carte: "Joyeux anniversaire"', 'none'),
 (5, 1, 7, '2023-02-13 19:20:00', '2023-02-14 08:00:00', 'shipped', NULL, 'のし; 内祝', 'none'),
 (6, 5, 8, '2023-03-02 03:00:00', NULL, 'cancelled', 'WELCOME', NULL, 'cancel'),
 (7, 8, 9, '2023-03-21 12:12:00', '2023-03-23 09:30:00', 'shipped', NULL, NULL, 'none'),
 (8, 4, 8, '2023-04-05 17:17:00', '2023-04-06 10:00:00', 'returned', NULL, '破損', 'refund'),
 (9, 9, 7, '2023-04-18 20:00:00', '2023-04-20 09:00:00', 'shipped', 'HARU', NULL, 'none'),
 (10, 12, 8, '2023-05-06 11:00:00', '2023-05-12 16:00:00', 'shipped', NULL, 'gift; no invoice', 'none'),
 (11, 15, 5, '2023-05-14 09:45:00', '2023-05-15 08:30:00', 'shipped', 'HAHA', '母の日', 'none'),
 (12, 11, 9, '2023-06-01 22:22:00', '2023-06-03 10:00:00', 'shipped', NULL, NULL, 'none'),
 (13, 15, 5, '2023-06-30 13:00:00', '2023-07-01 09:00:00', 'shipped', NULL, NULL, 'none'),
 (14, 16, 7, '2023-07-04 04:04:00', '2023-07-11 12:00:00', 'shipped', 'JULY4', NULL, 'address'),
 (15, 3, 8, '2023-07-19 06:30:00', '2023-07-25 10:10:00', 'shipped', NULL, NULL, 'none'),
 (16, 10, 9, '2023-08-08 18:00:00', NULL, 'cancelled', NULL, 'changed his mind', 'cancel'),
 (17, 17, 7, '2023-08-31 23:59:00', '2023-09-02 09:00:00', 'shipped', 'GAKUWARI', NULL, 'none'),
 (18, 1, 5, '2023-09-09 10:30:00', '2023-09-11 09:00:00', 'shipped', NULL, '敬老の日', 'none'),
 (19, 18, 8, '2023-09-20 07:00:00', '2023-09-28 14:00:00', 'shipped', NULL, NULL, 'none'),
 (20, 19, 9, '2023-10-10 16:40:00', '2023-10-12 09:00:00', 'shipped', 'AKI', NULL, 'none'),
 (21, 7, 9, '2023-11-01 12:00:00', '2023-11-07 10:00:00', 'shipped', NULL, NULL, 'none'),
 (22, 21, 5, '2023-11-23 09:00:00', '2023-11-24 08:45:00', 'shipped', NULL, '勤労感謝', 'none'),
 (23, 15, 5, '2023-12-01 10:00:00', '2023-12-02 09:00:00', 'shipped', 'FUYU', 'お歳暮; 3か所', 'none'),
 (24, 12, 8, '2023-12-10 15:00:00', '2023-12-18 10:00:00', 'shipped', 'FUYU', NULL, 'none'),
 (25, 3, 8, '2023-12-12 20:15:00', '2023-12-19 11:00:00', 'shipped', NULL, 'Weihnachten', 'none'),
 (26, 20, 7, '2024-01-03 02:30:00', '2024-01-12 10:00:00', 'shipped', NULL, NULL, 'none'),
 (27, 1, 7, '2024-01-06 11:00:00', '2024-01-08 09:00:00', 'shipped', 'SHINNEN', '年始', 'none'),
 (28, 22, 9, '2024-02-14 08:00:00', '2024-02-20 13:00:00', 'returned', 'AMOUR', NULL, 'refund'),
 (29, 21, 5, '2024-02-29 12:30:00', '2024-03-01 09:00:00', 'shipped', NULL, NULL, 'none'),
 (30, 9, 7, '2024-03-20 19:45:00', '2024-03-22 09:00:00', 'shipped', 'HARU', NULL, 'none'),
 (31, 7, 8, '2024-04-02 10:20:00', '2024-04-09 10:00:00', 'shipped', NULL, NULL, 'none'),
 (32, 15, 5, '2024-05-12 09:30:00', '2024-05-13 08:30:00', 'shipped', 'HAHA', '母の日; カード付', 'none'),
 (33, 23, NULL, '2024-05-20 21:21:00', NULL, 'pending', 'WELCOME', NULL, 'none'),
 (34, 24, NULL, '2024-05-25 17:00:00', NULL, 'pending', NULL, 'call first', 'none'),
 (35, 3, 8, '2024-05-28 06:06:00', NULL, 'paid', NULL, NULL, 'none'),
 (36, 1, 7, '2024-05-31 12:00:00', NULL, 'paid', 'NATSU', NULL, 'address');

INSERT INTO order_items (id, order_id, product_id, quantity, unit_price, discount) VALUES
 (1, 1, 1, 2, 1200, 0), (2, 1, 6, 1, 1800, 0), (3, 2, 4, 1, 2200, 200), (4, 2, 7, 1, 5400, 400),
 (5, 3, 3, 3, 980, 0), (6, 4, 2, 1, 2800, 0), (7, 4, 13, 4, 880, 100), (8, 5, 10, 2, 1500, 0),
 (9, 6, 12, 5, 640, NULL), (10, 7, 8, 1, 6200, 0), (11, 8, 9, 1, 3900, 0), (12, 9, 15, 2, 1100, 110),
 (13, 10, 16, 1, 2600, 0), (14, 10, 18, 1, 1980, 0), (15, 11, 10, 1, 1500, 150), (16, 11, 4, 2, 2200, 220),
 (17, 12, 12, 2, 640, 0), (18, 13, 11, 3, 1320, 0), (19, 14, 1, 1, 1200, 120), (20, 15, 17, 1, 4800, 0),
 (21, 16, 3, 2, 980, 0), (22, 17, 14, 6, 420, 42), (23, 18, 2, 2, 2800, 0), (24, 18, 11, 1, 1320, 0),
 (25, 19, 9, 1, 3900, NULL), (26, 20, 13, 3, 880, 80), (27, 21, 7, 1, 5400, 0), (28, 22, 19, 1, 3300, 0),
 (29, 23, 20, 3, 8800, 2640), (30, 24, 16, 2, 2600, 260), (31, 25, 8, 1, 6200, 0), (32, 26, 3, 2, 980, 0),
 (33, 27, 1, 4, 1200, 480), (34, 28, 10, 1, 1500, 75), (35, 29, 19, 1, 3300, 0), (36, 30, 15, 3, 1100, 330),
 (37, 31, 18, 2, 1980, 0), (38, 32, 20, 1, 8800, 880), (39, 33, 12, 1, 640, 64), (40, 35, 6, 2, 1800, 0);

INSERT INTO 売上目標 (年月, 部門, 目標額, 備考) VALUES
 ('2023-01', '営業', 12000, NULL), ('2023-02', '営業', 9000, '閑散期'), ('2023-03', '営業', 9500, NULL),
 ('2023-04', '営業', 10000, '新年度; 要確認'), ('2023-05', '営業', 15000, '母の日'), ('2023-06', '営業', 8000, NULL),
 ('2023-07', '営業', 9000, NULL), ('2023-08', '営業', 7000, 'お盆'), ('2023-09', '営業', 11000, '敬老の日'),
 ('2023-10', '営業', 9500, NULL), ('2023-11', '営業', 12500, NULL), ('2023-12', '営業', 30000, 'お歳暮'),
 ('2024-01', '営業', 14000, NULL), ('2024-02', '営業', 9500, NULL), ('2024-03', '営業', 10500, '年度末'),
 ('2024-04', '営業', 11000, NULL), ('2024-05', '営業', 16000, '母の日'), ('2024-05', '物流', 0, NULL);
