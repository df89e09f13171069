"""Two dialogues made for the tests of ranking: a chat in German and the log of an agent's tools."""

Turn = tuple[str, str]
"""Who speaks, and what is said."""

GERMAN: list[list[Turn]] = [
    [
        ("Anna", "Hallo Jens, wie war dein Wochenende?"),
        ("Jens", "Schön! Ich war mit meinem Bruder in Dresden und wir haben die Oper gesehen."),
        ("Anna", "Toll. Ich habe am Samstag den Balkon mit Tomaten und Basilikum bepflanzt."),
        ("Jens", "Klingt gut. Hast du den neuen Job schon angenommen?"),
        ("Anna", "Ja, ich fange am ersten Juni bei der Stadtbibliothek an."),
        ("Jens", "Glückwunsch! Dann können wir ja bald feiern."),
        ("Anna", "Gerne. Meine Schwester Lena kommt auch, sie wohnt jetzt in Leipzig."),
        ("Jens", "Ich bringe den Käsekuchen nach dem Rezept meiner Oma mit."),
    ],
    [
        ("Jens", "Guten Morgen Anna, mein Fahrrad wurde gestern gestohlen."),
        ("Anna", "Oh nein, vor deinem Büro?"),
        ("Jens", "Nein, vor dem Schwimmbad. Die Polizei hat die Anzeige aufgenommen."),
        ("Anna", "Ich kann dir mein altes leihen, es steht im Keller."),
        ("Jens", "Das wäre großartig, danke dir."),
        ("Anna", "Übrigens lerne ich seit drei Monaten Cello."),
        ("Jens", "Wirklich? Wer gibt dir Unterricht?"),
        ("Anna", "Frau Petersen aus der Musikschule, sie ist sehr geduldig."),
    ],
    [
        ("Anna", "Der Kater Moritz musste heute zum Tierarzt."),
        ("Jens", "Was fehlt ihm denn?"),
        ("Anna", "Er hat eine Zahnentzündung und bekommt jetzt Tabletten."),
        ("Jens", "Gute Besserung! Ich plane gerade den Urlaub in Norwegen."),
        ("Anna", "Fährst du mit dem Zug oder fliegst du?"),
        ("Jens", "Mit der Fähre von Kiel nach Oslo, die Kabine ist schon gebucht."),
        ("Anna", "Vergiss die Regenjacke nicht."),
        ("Jens", "Die habe ich im Ausverkauf für vierzig Euro gekauft."),
    ],
]
GERMAN_QUESTIONS: list[tuple[str, str]] = [
    ("Wo hat Jens die Oper gesehen?", "Dresden"),
    ("Was hat Anna auf dem Balkon gepflanzt?", "Tomaten"),
    ("Wann fängt Anna bei der Stadtbibliothek an?", "ersten Juni"),
    ("Wo wohnt Annas Schwester Lena?", "Leipzig"),
    ("Wo wurde das Fahrrad von Jens gestohlen?", "Schwimmbad"),
    ("Welches Instrument lernt Anna?", "Cello"),
    ("Wer unterrichtet Anna in der Musikschule?", "Petersen"),
    ("Warum war der Kater Moritz beim Tierarzt?", "Zahnentzündung"),
    ("Wie fährt Jens nach Norwegen?", "Fähre"),
    ("Was hat die Regenjacke gekostet?", "vierzig"),
]

TOOLS: list[list[Turn]] = [
    [
        ("agent", "run: pytest tests/billing -q"),
        ("tool", "FAILED tests/billing/test_tax.py::test_rounding - assert 10.01 == 10.0"),
        ("agent", "read: src/billing/tax.py"),
        ("tool", "def tax(amount): return round(amount * RATE, 3)"),
        ("agent", "edit: src/billing/tax.py, replace round(amount * RATE, 3) by quantize"),
        ("tool", "edited 1 file, 4 insertions, 1 deletion"),
        ("agent", "run: pytest tests/billing -q"),
        ("tool", "38 passed in 2.41s"),
    ],
    [
        ("agent", "run: docker compose up -d postgres"),
        ("tool", "Error: port 5432 is already allocated by container legacy-db"),
        ("agent", "run: docker stop legacy-db"),
        ("tool", "legacy-db"),
        ("agent", "run: docker compose up -d postgres"),
        ("tool", "Container postgres started, health: healthy"),
        ("agent", "run: alembic upgrade head"),
        ("tool", "Running upgrade 4f1c -> 9ab2, add column invoices.due_at"),
    ],
    [
        ("agent", "fetch: https://status.example.org/api/incidents"),
        ("tool", "503 Service Unavailable, retry-after: 120"),
        ("agent", "sleep: 120"),
        ("tool", "slept 120 s"),
        ("agent", "fetch: https://status.example.org/api/incidents"),
        ("tool", '{"incidents": [{"id": 77, "title": "queue lag", "resolved": true}]}'),
        ("agent", "run: kubectl rollout restart deployment/worker"),
        ("tool", "deployment.apps/worker restarted, 6 replicas"),
    ],
]
TOOL_QUESTIONS: list[tuple[str, str]] = [
    ("Which test failed in billing?", "test_rounding"),
    ("How was the rounding in tax.py changed?", "by quantize"),
    ("How many billing tests passed in the end?", "38 passed"),
    ("Why could postgres not start?", "5432"),
    ("What column did the upgrade add?", "invoices.due_at"),
    ("When may the incidents be fetched again?", "retry-after"),
    ("Which incident was resolved?", "queue lag"),
    ("How many replicas does the worker have?", "6 replicas"),
    ("Which container was stopped?", "docker stop"),
]
