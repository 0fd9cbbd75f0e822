// The page's words in Japanese, by their English.

export const ja = {
  // The frame
  "Chat": "チャット", "Runs": "実行", "Inbox": "受信箱", "Workflows": "ワークフロー", "Memory": "記憶", "Figures": "統計",
  "Main": "メニュー", "There is no such view": "その画面はありません", "This view failed": "この画面でエラーが起きました",
  "{count} waiting": "{count} 件が回答待ち", "light": "明るく", "dark": "暗く", "sign out": "サインアウト",
  "This server asks for a token.": "このサーバーにはトークンが必要です。", "Token": "トークン", "keep it in this browser": "このブラウザに保存する",
  "The server does not know this token.": "このトークンは登録されていません。", "Enter": "入る", "Keys": "キー操作", "To the content": "本文へ",
  "The server is not reached. What you see is from before; it goes on by itself.": "サーバーに接続できません。表示は切断前のものです。つながれば自動で続きます。",
  "the server is not reached": "サーバーに接続できません", "Loading …": "読み込み中 …", "Try again": "もう一度", "Close": "閉じる",
  "go to chat, runs, inbox, workflows, memory, figures": "チャット、実行、受信箱、ワークフロー、記憶、統計へ", "next, previous": "次、前", "open": "開く", "search": "検索",
  "one fact back, one forward": "記録を一つ戻る、進む", "fork, compare, make a test, stop": "分岐、比較、テスト作成、停止", "approve, edit, refuse": "承認、編集、拒否", "this list": "この一覧",
  // States
  "running": "実行中", "waiting for you": "回答待ち", "interrupted": "中断", "completed": "完了", "completed in part": "一部のみ完了", "failed": "失敗", "stopped": "停止",
  "blocked": "遮断", "step limit": "ステップ上限", "repeated itself": "同じ呼び出しの繰り返し", "tool limit": "ツール上限", "time limit": "時間切れ", "cost limit": "費用上限",
  "answer not readable": "回答を読み取れず", "answer incomplete": "回答が途中", "price unknown": "料金不明",
  "to come": "これから", "done": "完了", "skipped": "省略", "undone": "取り消し済み", "asks": "質問中",
  "pure": "副作用なし", "idempotent": "冪等", "compensable": "取り消し可", "irreversible": "取り消し不可",
  // Chat
  "Your question": "質問", "Ask again": "もう一度聞く", "Cancel": "やめる", "The conversation goes on from here in a new run; this one is kept.": "ここから新しい実行として会話が続きます。今のものは残ります。",
  "Edit and ask again": "編集してもう一度聞く", "edit": "編集", "handed to": "引き継ぎ:", "Conversations": "会話", "New conversation": "新しい会話", "fork": "分岐",
  "It was interrupted; a server takes it up again by itself.": "中断されました。サーバーが自動で再開します。", "see what happened": "経過を見る", "Conversation": "会話",
  "What shall be done?": "何をしましょうか", "Choose an agent, and ask.": "エージェントを選んで質問してください。", "No agents are served.": "エージェントがありません。", "Ask …": "質問を入力 …",
  "agent": "エージェント", "Enter sends, Shift Enter begins a new line": "Enter で送信、Shift Enter で改行", "Stop": "停止", "Send": "送信", "tokens": "トークン",
  // Compare
  "nothing": "なし", "It cost {one} against {other}": "費用は {one} 対 {other}", "both: {state}": "どちらも{state}", "left: {one}, right: {other}": "左は{one}、右は{other}",
  "They tell the same story.": "内容は同じです。", "First difference at fact {seq}: left {one}, right {other}.": "最初の違いは記録 {seq} です。左は {one}、右は {other}。", "fact {seq}": "記録 {seq}", "Compared": "比較",
  // Figures
  "most": "最大", "name": "名前", "calls": "呼び出し", "median": "中央値", "cost": "費用", "runs": "件の実行", "{count} without a price": "うち {count} 件は料金不明", "{count} d": "{count} 日", "all": "すべて",
  "Nothing to count yet": "まだ数えるものがありません", "Success": "成功率", "Cost": "費用", "Tokens": "トークン", "Duration (median)": "所要時間 (中央値)", "Duration (95 %)": "所要時間 (95 %)",
  "How they ended": "終わり方", "Tools": "ツール", "Models": "モデル", "Tools and models: of the last {count} runs.": "ツールとモデルは直近 {count} 件の集計です。",
  // Fork
  "Fork from fact {seq}": "記録 {seq} から分岐", "A new run goes on from there. The old one stays as it is. What you leave empty stays the same.": "そこから新しい実行が続きます。元の実行は変わりません。空欄のままなら同じ条件です。",
  "Result of {call}, instead of running it": "{call} を実行せずに返す結果", "Say something else": "別の指示", "Another model": "別のモデル", "Other instructions": "別の役割指示", "Fork": "分岐",
  // Inbox and questions
  "Nothing waits for you": "回答待ちはありません", "When an agent asks before it acts, the question stands here.": "エージェントが実行前に確認を求めると、ここに表示されます。",
  "without arguments": "引数なし", "Answered": "回答しました", "This is not JSON": "JSON ではありません", "Back": "戻る", "asks before it is run. May it?": "を実行してよいですか?",
  "It was begun before a crash, and nobody knows whether it took effect. Look before you decide.": "障害の前に始まり、実行されたかどうか分かりません。確かめてから決めてください。",
  "Spent so far: {cost}.": "これまでの費用: {cost}", "You may see this, but not answer it.": "閲覧のみで、回答の権限がありません。", "Arguments, as JSON": "引数 (JSON)", "Run it with these": "この引数で実行",
  "Why not? The agent reads it. It may stay empty.": "理由 (エージェントに伝わります。空欄でも構いません)", "Refuse": "拒否", "Answer": "回答", "Approve": "承認", "Edit": "編集",
  // Run
  "state": "状態", "why": "理由", "tasks": "作業", "{done} of {all} done": "{all} 件中 {done} 件完了", "model calls": "モデル呼び出し", "tool calls": "ツール呼び出し", "worked": "作業時間", "open calls": "未完了の呼び出し",
  "memory used": "使った記憶", "lives": "起動回数", "warnings": "警告", "At fact {seq}": "記録 {seq} の時点", "Now": "現在", "Made of": "構成", "model": "モデル", "tools": "ツール", "session": "会話", "run": "実行", "instructions": "役割指示",
  "part of": "親", "before it": "前", "forked from": "分岐元", "after it": "次", "Related runs": "関連する実行", "compare": "比較", "Compare with": "比較する相手", "Search and filter": "検索と絞り込み", "No run fits": "該当する実行がありません",
  "Tokens of each model call: {list}": "モデル呼び出しごとのトークン: {list}", "Tokens as it went": "トークンの推移", "most in one call": "一回の最大", "in all": "合計", "Asked to stop": "停止を求めました", "The test was downloaded": "テストを保存しました",
  "Goes on": "再開しました", "Rated": "評価しました", "Delete this run for good?": "この実行を完全に削除しますか?", "There is no such run": "その実行はありません", "{count} model calls": "モデル呼び出し {count} 回", "Compare": "比較", "Make a test": "テストにする",
  "Fork from {seq}": "{seq} から分岐", "Go on": "続ける", "good": "良い", "bad": "悪い", "Delete": "削除", "You see the run as it stood at fact {seq} of {last}.": "記録 {last} 件のうち {seq} の時点を表示しています。", "To the end": "最新へ",
  "Story": "経過", "Facts": "記録", "as a story": "経過で見る", "all {count} facts": "全 {count} 件の記録", "Plan {number}": "計画 {number}", "Workflow": "ワークフロー", "Tasks": "作業", "Timeline": "時系列", "{count} more lanes": "ほかに {count} 行", "Fact": "記録",
  // Runs
  "goes on from {run}": "{run} の続き", "of {count}": "/ {count} 件", "title, status:failed, agent:name, cost>0.01, day:today …": "題名、status:failed、agent:名前、cost>0.01、day:today …", "by": "並び", "title": "題名", "begun": "開始", "duration": "時間",
  "newest": "新しい順", "Take a word out of the search.": "検索の言葉を減らしてください。", "No runs yet": "まだ実行がありません", "Ask an agent something, and it will stand here.": "エージェントに質問すると、ここに並びます。",
  // Story
  "less": "短く", "all {count} characters": "全 {count} 文字", "in parallel": "並行", "try {count}": "{count} 回目", "run with": "実際の引数:", "in its place": "代わりに", "not run yet": "未実行", "another result …": "別の結果で …", "facts": "件の記録",
  "thought": "思考", "plan {number}": "計画 {number}", "you": "あなた", "taken up again, life {count}": "再開 ({count} 回目の起動)", "goes on from here": "ここからの続き", "fact": "記録", "{count} messages were summed up": "{count} 件の発言を要約",
  "{count} memories were recalled": "{count} 件の記憶を参照", "hidden from readers": "利用者には非表示",
  // Workflows
  "Parameters, as JSON": "パラメーター (JSON)", "Start": "開始", "No workflows are served": "ワークフローがありません",
  "A workflow is served like an agent: app([agent, workflow]). The runs of others are drawn where they stand, among the runs.": "ワークフローもエージェントと同じく app([agent, workflow]) で公開します。ほかの実行は、一覧から開くと図で見られます。",
  // Memory
  "Corrected": "訂正しました", "Forget this for good, with its past?": "過去の内容も含めて完全に忘れますか?", "Forgotten": "忘れました", "The right words": "正しい内容", "Correct": "訂正する", "since {day}": "{day} から", "until {day}": "{day} まで", "from a run": "実行から",
  "written by a person": "人が記入", "correct": "訂正", "forget": "忘れる", "before": "以前", "No agent here has a memory": "記憶を持つエージェントがありません",
  "Give one to an agent: Agent(…, context=[Memory()]), or memory: in kaname.yaml.": "Agent(…, context=[Memory()])、または kaname.yaml の memory: で持たせられます。", "Search": "検索", "user": "利用者", "Nothing was found": "見つかりませんでした",
  "Nothing is remembered yet": "まだ記憶がありません", "Remember this": "覚えること", "Add": "追加", "of the user": "利用者の", "of the agent": "エージェントの", "of the project": "プロジェクトの",
  "a fact": "事実", "a preference": "好み", "a decision": "決定", "said": "発言", "a setting": "設定",
};
