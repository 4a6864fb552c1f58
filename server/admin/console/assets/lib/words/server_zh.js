// Simplified Chinese for what the server says in English: states of arms, replicas and models, and verdicts and findings of A/B tests.
export const STATES = {
  starting: "正在启动",
  serving: "服务中",
  restarting: "正在重启",
  draining: "正在排空",
  drained: "已排空",
  stopped: "已停止",
  failed: "失败",
  loading: "正在加载",
  loaded: "已加载",
  unloading: "正在卸载",
  unloaded: "未加载",
};

/** [the server's form, the words]; `$1` and so on are figures and names, which stay as they are. */
export const VERDICTS = [
  [/^not measured yet$/, "尚未测量"],
  [/^one block cannot tell$/, "一个区组不足以判断"],
  [/^no difference: the same in every repeat$/, "无差异：每个区组都相同"],
  [/^no difference of (\S+) or more$/, "没有 $1 或更大的差异"],
  [/^no difference shown yet: (\S+) blocks would not do to see (\S+)$/, "尚未显示差异：$1 个区组也不足以看出 $2"],
  [/^no difference shown yet: needs about (\S+) more blocks? \((.+)\) to see (\S+)$/, "尚未显示差异：约需再有 $1 个区组（$2）才能看出 $3"],
  [/^(.+) raises (.+) by (.+) (\[.+\]): better$/, "$1 使 $2 升高 $3 $4：更好"],
  [/^(.+) raises (.+) by (.+) (\[.+\]): worse$/, "$1 使 $2 升高 $3 $4：更差"],
  [/^(.+) lowers (.+) by (.+) (\[.+\]): better$/, "$1 使 $2 降低 $3 $4：更好"],
  [/^(.+) lowers (.+) by (.+) (\[.+\]): worse$/, "$1 使 $2 降低 $3 $4：更差"],
];

/** How long the blocks take that a verdict asks for. */
export const PARTS = [
  [/（pace unknown）/, "（速度未知）"],
  [/（(\d+) days）/, "（$1 天）"],
  [/（(\d+) hours）/, "（$1 小时）"],
  [/（(\d+) minutes）/, "（$1 分钟）"],
  [/（(\d+) seconds）/, "（$1 秒）"],
];

export const FINDINGS = [
  [/^(.+): (\d+) of (\d+) answers failed, the latest because: ([^]*)$/, "$1：$3 个回答中有 $2 个失败，最近一次的原因：$4"],
  [
    /^(.+): (\S+) answers? of its scheduling policy could not be carried out, and requests were served in arrival order instead; the log says why$/,
    "$1：调度策略有 $2 次结果无法执行，请求改按到达顺序处理；原因见日志",
  ],
  [
    /^successive blocks are alike \(autocorrelation (\S+)\): they are not independent, and intervals are narrower than they should be$/,
    "相邻区组彼此相似（自相关 $1）：它们并不独立，区间比应有的更窄",
  ],
];
