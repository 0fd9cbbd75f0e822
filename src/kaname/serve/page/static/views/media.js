// Pictures, sounds and files: shown in a conversation, and attached to a message.

import { html, useEffect, useState } from "../vendor/preact.js";
import { blob, runPath, saveFile, upload } from "../server.js";
import { t } from "../words.js";

const LARGEST = 20_000_000; // bytes of all attached files of a message
const KINDS = { image: /^image\/(png|jpeg|gif|webp)$/, audio: /^audio\//, video: /^video\// };

export const kindOf = mime => Object.keys(KINDS).find(kind => KINDS[kind].test(mime)) || "file";

// A medium of a run. It is loaded when it is shown.
export function Medium({ one }) {
  const [url, setUrl] = useState("");
  const kind = kindOf(one.mime);
  const name = one.name || one.mime;
  const path = one.hash ? runPath(one.run, `/media/${one.hash}`) : "";
  useEffect(() => {
    if (!path || kind === "file") return undefined;
    let made = "";
    let gone = false;
    blob(path).then(
      content => gone || setUrl((made = URL.createObjectURL(content))),
      () => {},
    );
    return () => ((gone = true), made && URL.revokeObjectURL(made));
  }, [path]);
  if (url && kind === "image") return html`<figure class="medium"><img src=${url} alt=${name} /><figcaption class="note">${name}</figcaption></figure>`;
  if (url && kind === "audio") return html`<figure class="medium"><audio controls src=${url} aria-label=${name}></audio></figure>`;
  if (url && kind === "video") return html`<figure class="medium"><video controls src=${url} aria-label=${name}></video></figure>`;
  const save = () => blob(path).then(content => saveFile(name, content), () => {});
  return html`<span class="note">▧ ${path ? html`<button type="button" class="plain" onClick=${save}>${name}</button>` : name}</span>`;
}

// The files of a drop, a paste or a file field. Files that do not fit next to those that are attached are left out, and named
// in `tooLarge`.
export function filesOf(list, attached) {
  let left = LARGEST - attached.reduce((sum, one) => sum + one.size, 0);
  const [fitting, tooLarge] = [[], []];
  for (const file of list || []) {
    if (file.size > left) tooLarge.push(file.name);
    else (fitting.push({ name: file.name || "clipboard.png", size: file.size, content: file }), (left -= file.size));
  }
  return { files: fitting, tooLarge };
}

// The input of a run: the text, or the text with its files, which are uploaded now.
export async function withFiles(text, files) {
  if (!files.length) return text;
  const content = text ? [{ type: "text", text }] : [];
  for (const one of files) content.push({ type: "file", file: { file_id: (await upload(one.name, one.content)).file_id } });
  return [{ role: "user", content }];
}

export function Attached({ files, remove }) {
  return files.length
    ? html`<ul class="attached" aria-label=${t("Attached files")}>
        ${files.map(
          (one, place) =>
            html`<li key=${place}>
              <span>▧ ${one.name}</span>
              <button type="button" class="plain" onClick=${() => remove(place)} aria-label=${t("Remove {name}", { name: one.name })}>✕</button>
            </li>`,
        )}
      </ul>`
    : null;
}
